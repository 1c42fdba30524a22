package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// Both pages are there unless their feature is off, as text for people or as
// the kind that was asked for.
func TestZPages(t *testing.T) {
	s := startWhole(t, "--event-ttl=2h")
	admin := s.admin()
	for path, want := range map[string][]string{
		"/statusz": {"\napiserver statusz\n", "Binary version", "1.37", "Paths", "/healthz /livez /metrics"},
		"/flagz":   {"\napiserver flagz\n", "event-ttl", "2h0m0s", "service-cluster-ip-range", "10.96.0.0/16"},
	} {
		code, body := s.do(admin, "GET", path, "")
		for _, part := range want {
			if code != 200 || !strings.Contains(body, part) {
				t.Errorf("%s lacks %q: %d %s", path, part, code, body)
			}
		}
		if code, body := s.do(s.config(), "GET", path, ""); code != 403 {
			t.Errorf("%s is open to all: %d %s", path, code, body)
		}
	}
	code, body := s.do(admin, "GET", "/flagz", "", "Accept", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
	var page struct {
		Kind, APIVersion string
		Flags            map[string]string
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	if page.Kind != "Flagz" || page.APIVersion != "config.k8s.io/v1beta1" || page.Flags["event-ttl"] != "2h0m0s" {
		t.Errorf("got %+v", page)
	}
}

func TestZPagesOff(t *testing.T) {
	s := startWhole(t, "--feature-gates=ComponentStatusz=false,ComponentFlagz=false")
	for _, path := range []string{"/statusz", "/flagz"} {
		if code, body := s.do(s.admin(), "GET", path, ""); code != 404 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
