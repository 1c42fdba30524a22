package attack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// registry serves an image without a command, under any name, to clients with
// the password. It returns its host and port.
func registry(t *testing.T, user, password string) string {
	t.Helper()
	blobs := map[string][]byte{}
	add := func(mediaType string, content []byte) map[string]any {
		sum := sha256.Sum256(content)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		blobs[digest] = content
		return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(content)}
	}
	encode := func(value any) []byte {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	if err := archive.WriteHeader(&tar.Header{Name: "file", Mode: 0o600, Size: 6}); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write([]byte("hidden")); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	layer := add("application/vnd.oci.image.layer.v1.tar", files.Bytes())
	config := add("application/vnd.oci.image.config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH, "os": runtime.GOOS, "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layer["digest"]}},
	}))
	manifest := add(manifestType, encode(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{layer},
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		digest := path.Base(r.URL.Path)
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", manifestType)
			if !strings.HasPrefix(digest, "sha256:") { // a tag
				digest = manifest["digest"].(string)
			}
		} else if r.URL.Path == "/v2/" {
			return
		}
		content, ok := blobs[digest]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Docker-Content-Digest", digest)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(content)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
