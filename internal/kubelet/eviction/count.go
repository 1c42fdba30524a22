package eviction

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// counter counts the files of pods. A pod chooses how many files it has, and to count
// one tree takes up to seconds, for which files.FS has a bound. A few trees are counted
// at a time, one of a pod, and pods share the time, so that one with many files hardly
// delays the others. It keeps what it counted for others that ask shortly after.
type counter struct {
	files files.FS
	line  *compute.Queue

	mu   sync.Mutex // guards pods
	pods map[types.UID]*counted
}

// counted is what is known of the files of one pod.
type counted struct {
	trees map[string]count // by path
	// The limits of the pod are being checked, or not checked again before next.
	busy bool
	next time.Time
}

// count is what a tree of files has.
type count struct {
	bytes, inodes int64
	err           error // why it may have more; nil if it has not
	at            time.Time
	took          time.Duration // 0 if it was counted before
}

const (
	// countsAtATime is how many trees are counted at a time.
	countsAtATime = 2
	// countLease is after how long the count of a tree that hangs delays no others.
	countLease = 10 * time.Second
	// countAge is how long a count is good enough to evict pods.
	countAge = period / 2
	// shownAge is how long a count is good enough to be shown. It is upstream's.
	shownAge = time.Minute
	// A pod is not counted again for countPause times as long as the last time took,
	// and for maxCountPause at most.
	countPause    = 4
	maxCountPause = time.Minute
)

func newCounter(f files.FS) *counter {
	return &counter{files: f, line: compute.NewQueue(countsAtATime, 1, countLease), pods: map[types.UID]*counted{}}
}

// Count returns how much a tree of a pod has, and when that was: at most a minute ago.
// If it has to be counted, pods share the time for that, as when the Manager counts them.
// It ends early, with an error, only while it waits for its turn.
func (m *Manager) Count(ctx context.Context, uid types.UID, path string) (bytes, inodes int64, at time.Time, err error) {
	tree := m.counter.count(ctx, uid, path, shownAge)
	return tree.bytes, tree.inodes, tree.at, tree.err
}

// count counts a tree of a pod, unless that was done less than age ago. It ends early,
// with an error, only while it waits for its turn.
func (c *counter) count(ctx context.Context, uid types.UID, path string, age time.Duration) count {
	if known, ok := c.known(uid, path, age); ok {
		return known
	}
	turn, err := c.line.Acquire(ctx, string(uid))
	if err != nil {
		return count{err: err}
	}
	defer turn.Release()
	if known, ok := c.known(uid, path, age); ok {
		return known
	}
	now := count{at: time.Now()}
	now.bytes, now.inodes, now.err = c.files.Usage(path)
	now.took = time.Since(now.at)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(uid).trees[path] = now
	return now
}

// known returns what a tree had less than age ago.
func (c *counter) known(uid types.UID, path string, age time.Duration) (known count, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok = c.of(uid).trees[path]
	known.took = 0
	return known, ok && time.Since(known.at) < age
}

// of returns what is known of a pod, to change it. The caller holds mu.
func (c *counter) of(uid types.UID) *counted {
	if c.pods[uid] == nil {
		c.pods[uid] = &counted{trees: map[string]count{}}
	}
	return c.pods[uid]
}

// begin reports whether it is time to check the limits of a pod. The caller must call
// end afterwards.
func (c *counter) begin(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.of(uid)
	if pod.busy || time.Now().Before(pod.next) {
		return false
	}
	pod.busy = true
	return true
}

// end ends a check of the limits of a pod, for which its files were counted for so
// long.
func (c *counter) end(uid types.UID, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.of(uid)
	pod.busy, pod.next = false, time.Now().Add(min(countPause*took, maxCountPause))
}

// forget drops what is too old for anybody.
func (c *counter) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for uid, pod := range c.pods {
		maps.DeleteFunc(pod.trees, func(_ string, tree count) bool { return now.Sub(tree.at) >= shownAge })
		if len(pod.trees) == 0 && !pod.busy && !now.Before(pod.next) {
			delete(c.pods, uid)
		}
	}
}
