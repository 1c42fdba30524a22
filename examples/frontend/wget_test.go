package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func TestWget(t *testing.T) {
	server := httptest.NewServer(handler("pod-1"))
	defer server.Close()
	for _, args := range [][]string{
		{"-qO-", server.URL},
		{"-q", "-O", "-", server.URL},
		{"-T", "3", "-qO-", strings.TrimPrefix(server.URL, "http://")},
		{"-T3", "-O-", server.URL},
	} {
		var out strings.Builder
		if err := wget(args, &out); err != nil || out.String() != "pod-1\n" {
			t.Errorf("wget %q gave %q, %v", args, out.String(), err)
		}
	}
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	if err := wget([]string{"-qO-", missing.URL}, nil); err == nil {
		t.Error("wget of a missing page succeeded")
	}
	if err := wget([]string{"-q", "-O", filepath.Join(t.TempDir(), "f"), server.URL}, nil); err != nil {
		t.Error(err)
	}
}
