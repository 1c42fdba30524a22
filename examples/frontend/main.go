// Command frontend is the example application: a web server that names the pod
// that answers. GET / returns the pod's name and a newline, GET /healthz
// returns ok for probes. It listens on :80, or on $PORT. Under the name wget it
// is a small wget.
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
		// Close each connection, so that a client sees the Service select among
		// the pods.
		w.Header().Set("Connection", "close")
		_, _ = fmt.Fprintln(w, name)
	})
	return mux
}

// serve serves until ctx ends, and then finishes requests in progress.
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
