package image

import (
	"cmp"
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

// use is when an image was used. The minimum age of an image counts since it was kept: it
// was found then, or a pod asked for it, whose container may not be there yet. Its maximum
// age counts since it was last in use.
type use struct{ kept, last time.Time }

// unused returns the images to remove in order to free want bytes: images that
// are not in use and that are old, least recently used first, and of those that were used
// at one time, the one first that was kept first.
func unused(images []*runtimeapi.Image, inUse references, useOf func(id string) use, old func(u use) bool, want int64) []*runtimeapi.Image {
	var free []*runtimeapi.Image
	for _, i := range images {
		if !inUse.includes(i) && !i.GetPinned() && old(useOf(i.GetId())) {
			free = append(free, i)
		}
	}
	slices.SortStableFunc(free, func(a, b *runtimeapi.Image) int {
		x, y := useOf(a.GetId()), useOf(b.GetId())
		return cmp.Or(x.last.Compare(y.last), x.kept.Compare(y.kept))
	})
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
	used := make(map[string]use, len(images))
	for _, i := range images {
		known, ok := p.used[i.GetId()]
		if !ok {
			known = use{now, now}
		}
		if inUse.includes(i) {
			known.last = now
		}
		used[i.GetId()] = known
	}
	p.used = used
}

// useOf returns when an image was used. An image that recordUse has not seen counts as
// used now.
func (p *puller) useOf(id string) use {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.used[id]; ok {
		return known
	}
	now := time.Now()
	return use{now, now}
}
