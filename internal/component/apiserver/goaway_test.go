package apiserver_test

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

// Now and then a client has to reconnect, and loses nothing by it. The
// probability that none of these requests is chosen is 1 to 10¹³.
func TestGoaway(t *testing.T) {
	s := startWhole(t, "--goaway-chance=0.02")
	client := s.client(s.admin())
	connections := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			connections++
		}
	}})
	for range 1500 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
			t.Fatalf("%s %s: %v", answer.Proto, answer.Status, err)
		}
	}
	if connections < 2 {
		t.Error("one connection served all requests")
	}
}

func TestGoawayChanceIsSmall(t *testing.T) {
	flags := apiserver.NewOptions()
	flags.Requests.HTTP.GoawayChance = 0.5
	if err := flags.Validate(); err == nil || !strings.Contains(err.Error(), "--goaway-chance can not be less than 0 or greater than 0.02") {
		t.Errorf("got %v", err)
	}
}
