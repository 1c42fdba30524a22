// Command frontend is the example application: a web server that says which
// pod answered. GET / gives the pod's name and a newline; GET /healthz gives
// ok for probes. It listens on :80, or on $PORT. Called wget, it is that.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if filepath.Base(os.Args[0]) == "wget" {
		if err := wget(os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "wget:", err)
			os.Exit(1)
		}
		return
	}
	name, err := os.Hostname()
	if err != nil {
		log.Fatal("reading the pod's name: ", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server := &http.Server{
		Addr:              ":" + cmp.Or(os.Getenv("PORT"), "80"),
		Handler:           handler(name),
		ReadHeaderTimeout: 5 * time.Second,
	}
	if err := serve(ctx, server); err != nil {
		log.Fatal(err)
	}
}

func handler(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		log.Print(r.Method, " ", r.URL.Path, " from ", r.RemoteAddr)
		// Each request is a new connection, so that a client sees the
		// Service choose among the pods.
		w.Header().Set("Connection", "close")
		_, _ = fmt.Fprintln(w, name)
	})
	return mux
}

// serve answers until ctx ends, then finishes the requests under way.
func serve(ctx context.Context, server *http.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Print("listening on ", server.Addr)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
