package image

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// references are ids, digests and names of images.
type references map[string]bool

// includes reports whether the image has one of the references.
func (r references) includes(image *runtimeapi.Image) bool {
	named := func(name string) bool { return r[name] }
	return r[image.GetId()] || slices.ContainsFunc(image.GetRepoTags(), named) || slices.ContainsFunc(image.GetRepoDigests(), named)
}

// unused returns the images to remove in order to free want bytes: images that
// are not in use and that were last used at least minimum ago, least recently
// used first.
func unused(images []*runtimeapi.Image, inUse references, lastUsed func(id string) time.Time, now time.Time, minimum time.Duration, want int64) []*runtimeapi.Image {
	var free []*runtimeapi.Image
	for _, i := range images {
		if !inUse.includes(i) && !i.GetPinned() && now.Sub(lastUsed(i.GetId())) >= minimum {
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

// inExcess returns the images to remove, the first ones, so that the others have at most
// that many names.
func inExcess(images []*runtimeapi.Image, most int) []*runtimeapi.Image {
	names := 0
	for i, image := range slices.Backward(images) {
		if names += namesOf(image); names > most {
			return images[:i+1]
		}
	}
	return nil
}

// namesOf returns how many names an image has.
func namesOf(image *runtimeapi.Image) int {
	return 1 + len(image.GetRepoTags()) + len(image.GetRepoDigests())
}

// recordUse records when images were last used: those in use and those that the
// puller has not seen before are used at now. It forgets images that are not
// listed.
func (p *puller) recordUse(images []*runtimeapi.Image, inUse references, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := make(map[string]time.Time, len(images))
	for _, i := range images {
		last, ok := p.used[i.GetId()]
		if !ok || inUse.includes(i) {
			last = now
		}
		used[i.GetId()] = last
	}
	p.used = used
}

// lastUsed returns when an image was last used. An image that recordUse has not
// seen counts as used now.
func (p *puller) lastUsed(id string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.used[id]; ok {
		return last
	}
	return time.Now()
}
