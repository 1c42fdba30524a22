package openapi

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coracle-io/coracle/internal/costtest"
)

// nobody is a client that stops reading after the first bytes.
type nobody struct {
	header http.Header
	after  func()
}

func (n nobody) Header() http.Header { return n.header }
func (nobody) WriteHeader(int)       {}
func (n nobody) Write([]byte) (int, error) {
	n.after()
	return 0, fmt.Errorf("the client has left")
}

// Documents are decompressed while they are read: a client that does not read
// takes little memory, and many ranges cost no more than one response.
func TestDocumentsTakeLittleMemory(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	whole := ask(t, h, "/openapi/v2", typeJSON)
	if length := whole.Header().Get("Content-Length"); length != fmt.Sprint(whole.Body.Len()) || whole.Body.Len() < 1<<20 {
		t.Errorf("Content-Length: %s of %d bytes", length, whole.Body.Len())
	}
	if some := ask(t, h, "/openapi/v2", typeJSON, "Range", "bytes=-1,-1,-1"); some.Code != http.StatusOK || some.Body.Len() != whole.Body.Len() {
		t.Errorf("ranges: %d with %d bytes, want all", some.Code, some.Body.Len())
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3/api/v1"} {
		least := uint64(math.MaxUint64) // of several: other goroutines allocate memory too
		for range 5 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			before := costtest.Allocated()
			h.ServeHTTP(nobody{http.Header{}, func() { least = min(least, costtest.Allocated()-before) }}, r)
		}
		if least > 256<<10 {
			t.Errorf("%s took %d bytes before the client had read any", path, least)
		}
	}
}

// Version 3 documents are converted to protobuf once, not for each client.
func TestProtobufIsMadeOnce(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if w := ask(t, h, "/openapi/v3/apis/batch/v1", typeV3); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	d, err := h.document("apis/batch/v1")
	if err != nil {
		t.Fatal(err)
	}
	first, err := h.v3Protobuf(d)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.v3Protobuf(d); err != nil || again != first {
		t.Errorf("made again: %v", err)
	}
}
