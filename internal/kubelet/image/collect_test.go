package image

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The images to remove are those that nothing uses or pins, the least recently used first,
// and no more than are needed.
func TestUnusedImages(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ages := map[string]time.Duration{
		"young": time.Minute, "old": 3 * time.Hour, "oldest": 5 * time.Hour, "older": 4 * time.Hour,
		"pinned": 6 * time.Hour, "running": 6 * time.Hour, "tagged": 6 * time.Hour,
	}
	var all []*runtimeapi.Image
	for _, id := range []string{"young", "old", "pinned", "oldest", "running", "older", "tagged"} {
		all = append(all, &runtimeapi.Image{Id: id, RepoTags: []string{id + ":1"}, Size: 100, Pinned: id == "pinned"})
	}
	for _, test := range []struct {
		bytes int64
		want  string
	}{
		{0, ""},
		{1, "oldest"},
		{100, "oldest"},
		{101, "oldest older"},
		{1 << 40, "oldest older old"},
	} {
		var got []string
		for _, i := range unused(all, references{"running": true, "tagged:1": true}, func(id string) time.Time { return now.Add(-ages[id]) }, now, 2*time.Minute, test.bytes) {
			got = append(got, i.GetId())
		}
		if names := strings.Join(got, " "); names != test.want {
			t.Errorf("for %d bytes: %q, want %q", test.bytes, names, test.want)
		}
	}
}
