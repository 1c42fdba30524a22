package headers_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/apiserver/headers"
)

func TestStrip(t *testing.T) {
	h := http.Header{}
	for _, name := range []string{
		"Authorization", "AUTHORIZATION", "X-Remote-User", "x-remote-user", "X_Remote_User", "X-Remote_group", "X-REMOTE-UID", "X_REMOTE_EXTRA_Scopes", "X-Remote-Extra-",
		"X-Who", "x_who", "X-More-About",
		"Accept", "X-Remote", "X-Remote-Users", "X-Whose", "X-More", "Author",
	} {
		h[name] = []string{"a", "b"}
	}
	set := headers.FrontProxy().With([]string{"X-Who"}, []string{"X-More-", ""})
	set.Strip(h)
	want := []string{"Accept", "Author", "X-More", "X-Remote", "X-Remote-Users", "X-Whose"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(h))); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkStrip(b *testing.B) {
	set := headers.FrontProxy().With([]string{"X-Remote-User", "X-Remote-Uid", "X-Remote-Group"}, []string{"X-Remote-Extra-"})
	h := http.Header{"Accept": nil, "Accept-Encoding": nil, "User-Agent": nil, "Content-Type": nil, "Kubectl-Command": nil, "Content-Length": nil}
	b.ReportAllocs()
	for b.Loop() {
		set.Strip(h)
	}
}
