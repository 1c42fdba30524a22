package nodejoin

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

var token = bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}

// advertiser serves cluster-info over TLS, as change makes it at each request, and
// counts the requests.
func advertiser(t *testing.T, change func(request int32, data map[string]string)) (url string, authority []byte) {
	var requests atomic.Int32
	var content string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s with %v", r.URL.Path, r.Header)
		}
		data := map[string]string{"kubeconfig": content, "jws-kubeconfig-abcdef": token.Sign(content)}
		change(requests.Add(1), data)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: data}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	content = infoWith(t, authority)
	return s.URL, authority
}

// infoWith returns a kubeconfig of cluster-info.
func infoWith(t *testing.T, authority []byte) string {
	t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
		"": {Server: "https://api.example:6443", CertificateAuthorityData: authority}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func hashesOf(t *testing.T, authority []byte) []string {
	t.Helper()
	hashes, err := (&Cluster{Authority: authority}).AuthorityHashes()
	if err != nil {
		t.Fatal(err)
	}
	return hashes
}

// The signature may appear later than the first question.
func TestDiscover(t *testing.T) {
	url, authority := advertiser(t, func(request int32, data map[string]string) {
		if request == 1 {
			delete(data, "jws-kubeconfig-abcdef")
		}
	})
	c, err := Discover(t.Context(), url, token, hashesOf(t, authority))
	if err != nil || c.Server != "https://api.example:6443" || !slices.Equal(c.Authority, authority) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestImpostors(t *testing.T) {
	nothing := func(int32, map[string]string) {}
	for name, c := range map[string]struct {
		change func(request int32, data map[string]string)
		hashes []string // nil for the right ones
		want   string
	}{
		"another authority": {nothing, []string{"sha256:00"}, "none of the given ones"},
		"no hashes":         {nothing, []string{}, "none of the given ones"},
		"does not know the token": {func(_ int32, data map[string]string) {
			data["jws-kubeconfig-abcdef"] = bootstraptoken.Token{ID: "abcdef", Secret: "fedcba9876543210"}.Sign(data["kubeconfig"])
		}, nil, "not by this token"},
		"changes what is signed": {func(_ int32, data map[string]string) { data["kubeconfig"] += "\n" }, nil, "not by this token"},
		"says something else later": {func(request int32, data map[string]string) {
			if request > 1 {
				data["kubeconfig"] += "\n"
			}
		}, nil, "cluster-info of https://127.0.0.1:"},
		"names no authority": {func(_ int32, data map[string]string) {
			data["kubeconfig"] = infoWith(t, nil)
			data["jws-kubeconfig-abcdef"] = token.Sign(data["kubeconfig"])
		}, nil, "no server or no authority"},
	} {
		t.Run(name, func(t *testing.T) {
			url, authority := advertiser(t, c.change)
			if c.hashes == nil {
				c.hashes = hashesOf(t, authority)
			}
			if found, err := Discover(t.Context(), url, token, c.hashes); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want %q", found, err, c.want)
			}
		})
	}
}

// A server that sends without end, before it has proven anything, is not read without end.
func TestEndlessAnswer(t *testing.T) {
	const most = 64 << 20 // so that this test ends, too, if all is read
	ctx, cancel := context.WithCancel(t.Context())
	var sent atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer cancel()
		w.Header().Set("Content-Type", "application/json")
		for block := bytes.Repeat([]byte(" "), 64<<10); sent.Load() < most; {
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer s.Close()
	found, err := Discover(ctx, s.URL, token, []string{"sha256:00"})
	if err == nil || !strings.Contains(err.Error(), "too large") || sent.Load() >= most {
		t.Errorf("%+v, %v, after %d bytes", found, err, sent.Load())
	}
}

// Without an answer, the error is the last one of the server.
func TestTokenThatDoesNotSign(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url, authority := advertiser(t, func(request int32, data map[string]string) {
		delete(data, "jws-kubeconfig-abcdef")
		if request == 2 {
			cancel()
		}
	})
	if found, err := Discover(ctx, url, token, hashesOf(t, authority)); err == nil || !strings.Contains(err.Error(), "has not signed it") {
		t.Errorf("%+v, %v", found, err)
	}
}

// A server with a certificate of another authority than the signed one is not the
// cluster's, though it passes on what the cluster has signed.
func TestServerInTheMiddle(t *testing.T) {
	middle, _ := advertiser(t, func(_ int32, data map[string]string) {
		data["kubeconfig"] = infoWith(t, []byte(otherAuthority))
		data["jws-kubeconfig-abcdef"] = token.Sign(data["kubeconfig"])
	})
	if found, err := Discover(t.Context(), middle, token, hashesOf(t, []byte(otherAuthority))); err == nil || !strings.Contains(err.Error(), "verified by its authority") {
		t.Errorf("%+v, %v", found, err)
	}
}
