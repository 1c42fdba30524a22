package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/util/proxy"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/logging"
)

// streams parses which streams a request for exec or attach asks for. A terminal
// has no stderr of its own.
func streams(q url.Values) streamproxy.Options {
	set := func(names ...string) bool {
		for _, n := range names {
			if v := q.Get(n); v == "1" || v == "true" {
				return true
			}
		}
		return false
	}
	tty := set("tty")
	return streamproxy.Options{Stdin: set("input", "stdin"), Stdout: set("output", "stdout"), Stderr: set("error", "stderr") && !tty, Tty: tty}
}

// target returns the id of the running container that a request names. If there
// is none, it answers the request.
func (s *Server) target(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	pod := s.find(w, r)
	if pod == nil {
		return "", false
	}
	id, err := s.containerID(r.Context(), pod, r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return "", false
	}
	return id, true
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()["command"]
	s.interact(w, r, func(id string, o streamproxy.Options) (string, error) {
		answer, err := s.config.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: command, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.Tty,
		})
		return answer.GetUrl(), err
	})
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	s.interact(w, r, func(id string, o streamproxy.Options) (string, error) {
		answer, err := s.config.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
			ContainerId: id, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.Tty,
		})
		return answer.GetUrl(), err
	})
}

// interact forwards a request for streams of a container to the address that
// prepare returns.
func (s *Server) interact(w http.ResponseWriter, r *http.Request, prepare func(id string, o streamproxy.Options) (address string, err error)) {
	id, ok := s.target(w, r)
	if !ok {
		return
	}
	o := streams(r.URL.Query())
	if !o.Stdin && !o.Stdout && !o.Stderr {
		http.Error(w, "you must specify at least 1 of stdin, stdout, stderr", http.StatusBadRequest)
		return
	}
	address, err := prepare(id, o)
	s.forward(w, r, address, err, o)
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	pod := s.find(w, r)
	if pod == nil {
		return
	}
	id, err := s.sandboxID(r.Context(), pod)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	request := &runtimeapi.PortForwardRequest{PodSandboxId: id}
	for _, text := range append(r.URL.Query()["port"], r.URL.Query()["ports"]...) {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			http.Error(w, fmt.Sprintf("query parameter port must be from 1 to 65535, not %q", text), http.StatusBadRequest)
			return
		}
		request.Port = append(request.Port, int32(port))
	}
	answer, err := s.config.Runtime.PortForward(r.Context(), request)
	s.forward(w, r, answer.GetUrl(), err, streamproxy.Options{})
}

// forward proxies an upgraded connection to the address of the runtime's
// streaming server. That server speaks SPDY, so forward translates newer
// WebSocket protocols (KEP-4006) unless ExtendWebSocketsToKubelet is off. If err
// is not nil, the runtime gave no address, and forward answers with the error.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, address string, err error, o streamproxy.Options) {
	location := (*url.URL)(nil)
	if err == nil {
		location, err = url.Parse(address)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var handler http.Handler = proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{})
	switch {
	case !s.config.Features.Enabled(feature.ExtendWebSocketsToKubelet):
	case wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
		handler = streamproxy.NewStreamTranslatorHandler(location, nil, 0, o)
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		handler = streamproxy.NewTunnelingHandler(handler)
	}
	logging.Streams(handler).ServeHTTP(limitIdle(w, s.config.Configuration.StreamingConnectionIdleTimeout.Duration), r)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "A stream to the container runtime failed", "path", r.URL.Path)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	id, ok := s.target(w, r)
	if !ok {
		return
	}
	command := r.URL.Query()["cmd"]
	if len(command) == 0 {
		http.Error(w, "query parameter cmd names the command to run", http.StatusBadRequest)
		return
	}
	output, err := cri.Exec(r.Context(), s.config.Runtime, id, command, 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(output)
}
