package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
)

// profiled runs work and writes a CPU profile of the server to a file. If the
// work ends before the profile, the rest of the profile is of an idle server.
func (c *cluster) profiled(ctx context.Context, file string, work func() error) error {
	l, err := newLoad(c.config)
	if err != nil {
		return err
	}
	defer l.close()
	done := make(chan error, 1)
	go func() { done <- l.saveProfile(ctx, file) }()
	return errors.Join(work(), <-done)
}

func (l *load) saveProfile(ctx context.Context, file string) error {
	response, err := l.open(ctx, 0, call{method: http.MethodGet, path: "/debug/pprof/profile?seconds=40"})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, response.Body)
	return errors.Join(err, out.Close())
}
