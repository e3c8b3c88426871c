// Command informer is a client of the API server as most are: a shared informer of client-go on one custom resource. It prints each
// call of its handlers as a line of JSON, and `synced` once its store is whole. With -reread it is no client: it decodes a list of NodeMetrics
// of its standard input into Koordinator's types, and prints what they hold.
package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type line struct {
	Event   string `json:"event"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

func main() {
	server := flag.String("server", "", "URL of the API server")
	authority := flag.String("certificate-authority", "", "file of the authority that signed the server's certificate")
	token := flag.String("token", "", "token of the caller")
	group := flag.String("group", "", "API group")
	version := flag.String("version", "v1", "version of the group")
	resource := flag.String("resource", "", "resource")
	namespace := flag.String("namespace", "", "namespace; none for all, and for what is in none")
	koordinator := flag.Bool("reread", false, "decode NodeMetrics of the standard input as Koordinator does, and print them")
	flag.Parse()
	if *koordinator {
		if err := reread(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}

	config := &rest.Config{Host: *server, BearerToken: *token, TLSClientConfig: rest.TLSClientConfig{CAFile: *authority}}
	client := dynamic.NewForConfigOrDie(config)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, *namespace, nil)
	informer := factory.ForResource(schema.GroupVersionResource{Group: *group, Version: *version, Resource: *resource}).Informer()

	var mutex sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(event string, object any) {
		mutex.Lock()
		defer mutex.Unlock()
		said := line{Event: event}
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			// The informer learned of it from a list: it missed the event.
			object, said.Event = gone.Obj, "missed-delete"
		}
		if object, ok := object.(*unstructured.Unstructured); ok {
			said.Name, said.Version = object.GetName(), object.GetResourceVersion()
		}
		if err := out.Encode(said); err != nil {
			os.Exit(1)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { say("add", object) },
		UpdateFunc: func(_, object any) { say("update", object) },
		DeleteFunc: func(object any) { say("delete", object) },
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		panic(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() { <-stop; close(done) }()
	go informer.Run(done)
	if cache.WaitForCacheSync(done, registration.HasSynced) {
		say("synced", nil)
	}
	<-done
}
