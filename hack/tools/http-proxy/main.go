// Command http-proxy is the proxy of a company, whose network nothing else leads out of: it takes CONNECT from who shows its name and
// password (407 if not), leads wherever is asked for, and says 502 if it does not come there.
//
// usage: http-proxy ADDRESS USER:PASSWORD
package main

import (
	"encoding/base64"
	"log"
	"net/http"
	"os"

	"github.com/elazarl/goproxy"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: http-proxy ADDRESS USER:PASSWORD")
	}
	proxy := goproxy.NewProxyHttpServer()
	proxy.Verbose = true
	// By itself, whatever proxy the machine has.
	proxy.ConnectDial = nil
	proxy.OnRequest().HandleConnect(of(os.Args[2]))
	log.Fatal(http.ListenAndServe(os.Args[1], proxy))
}

// of refuses who is not that user.
func of(user string) goproxy.FuncHttpsHandler {
	shown := "Basic " + base64.StdEncoding.EncodeToString([]byte(user))
	return func(host string, asked *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		if asked.Req.Header.Get("Proxy-Authorization") == shown {
			return goproxy.OkConnect, host
		}
		asked.Resp = &http.Response{
			StatusCode: http.StatusProxyAuthRequired,
			ProtoMajor: 1,
			ProtoMinor: 1,
			Header:     http.Header{"Proxy-Authenticate": {`Basic realm="company"`}},
		}
		return goproxy.RejectConnect, host
	}
}
