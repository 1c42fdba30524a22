package image

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Unused returns the images to remove so that want bytes become free: those
// that no container uses and that are older than minimum, the longest unused
// first. An image that was never seen in use counts from firstSeen.
func Unused(images []*runtimeapi.Image, inUse map[string]bool, lastUsed func(id string) time.Time, now time.Time, minimum time.Duration, want int64) []*runtimeapi.Image {
	var free []*runtimeapi.Image
	for _, i := range images {
		if !inUse[i.GetId()] && !i.GetPinned() && now.Sub(lastUsed(i.GetId())) >= minimum {
			free = append(free, i)
		}
	}
	slices.SortStableFunc(free, func(a, b *runtimeapi.Image) int { return lastUsed(a.GetId()).Compare(lastUsed(b.GetId())) })
	var out []*runtimeapi.Image
	for _, i := range free {
		if want <= 0 {
			break
		}
		out = append(out, i)
		want -= int64(i.GetSize())
	}
	return out
}

// LastUsed returns when an image was last needed, as far as this puller knows;
// an image seen for the first time counts as used now.
func (p *Puller) LastUsed(id string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.used[id]
	if !ok {
		t = time.Now()
		p.used[id] = t
	}
	return t
}
