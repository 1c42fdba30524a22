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
		useOf := func(id string) use { return use{now.Add(-ages[id]), now.Add(-ages[id])} }
		old := func(u use) bool { return now.Sub(u.kept) >= 2*time.Minute }
		for _, i := range unused(all, references{"running": true, "tagged:1": true}, useOf, old, test.bytes) {
			got = append(got, i.GetId())
		}
		if names := strings.Join(got, " "); names != test.want {
			t.Errorf("for %d bytes: %q, want %q", test.bytes, names, test.want)
		}
	}
}

// Of images that were used at one time, the one that was kept first is removed first.
func TestTiesOfUnusedImages(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	uses := map[string]use{"last": {now, now}, "first": {now.Add(-time.Hour), now}, "used": {now.Add(-time.Hour), now.Add(time.Second)}}
	var all []*runtimeapi.Image
	for _, id := range []string{"used", "last", "first"} {
		all = append(all, &runtimeapi.Image{Id: id, Size: 1})
	}
	var got []string
	for _, i := range unused(all, nil, func(id string) use { return uses[id] }, func(use) bool { return true }, 3) {
		got = append(got, i.GetId())
	}
	if names := strings.Join(got, " "); names != "first last used" {
		t.Errorf("removed are %q", names)
	}
}
