package userns

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// disk has the directories of pods. Reading the file broken fails, and listing the
// directories if they are unlisted.
type disk struct {
	files.Memory
	broken   string
	unlisted bool
}

func (d *disk) ReadFile(path string, limit int64) ([]byte, error) {
	if d.broken != "" && path == d.broken {
		return nil, fmt.Errorf("read %s: %w", path, syscall.EIO)
	}
	return d.Memory.ReadFile(path, limit)
}

func (d *disk) PodDir(uid types.UID) string { return filepath.Join("/pods", string(uid)) }

func (d *disk) Known() (uids []types.UID, err error) {
	if d.unlisted {
		return nil, syscall.EIO
	}
	names, _ := d.ReadDir("/pods")
	for _, name := range names {
		uids = append(uids, types.UID(name))
	}
	return uids, nil
}

func podWithUsers(name string) *v1.Pod {
	host := false
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}, Spec: v1.PodSpec{HostUsers: &host}}
}

// first returns the first id of the host that the pod has.
func first(t *testing.T, m *Manager, name string) uint32 {
	t.Helper()
	got, err := m.Mapping(podWithUsers(name))
	if err != nil {
		t.Fatal(err)
	}
	ids := got.GetUids()[0]
	if ids.GetContainerId() != 0 || ids.GetLength() != 65536 || ids.GetHostId() < 65536 || ids.GetHostId()%65536 != 0 || got.GetGids()[0] != ids {
		t.Errorf("the mapping of %s is %v", name, got)
	}
	return ids.GetHostId()
}

func TestRangesAreTheirPodsAlone(t *testing.T) {
	d := &disk{}
	m := &Manager{Files: d, Folders: d}
	var mu sync.Mutex // guards ranges
	ranges := map[uint32]string{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			name := fmt.Sprint("pod", i)
			id := first(t, m, name)
			mu.Lock()
			defer mu.Unlock()
			if other := ranges[id]; other != "" {
				t.Errorf("%s and %s have the same range", name, other)
			}
			ranges[id] = name
		})
	}
	wg.Wait()
	again := &Manager{Files: d, Folders: d} // as after a restart
	for id, name := range ranges {
		if got := first(t, again, name); got != id {
			t.Errorf("%s had %d and has %d", name, id, got)
		}
	}
	if got, err := m.Mapping(&v1.Pod{}); got != nil || err != nil {
		t.Errorf("a pod in the host's user namespace: %v, %v", got, err)
	}
}

// A range that cannot be read may be any range. It is not given to another pod.
func TestRangesThatCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(d *disk) error{
		"input/output error": func(d *disk) error { d.broken = "/pods/one/userns"; return nil },
		"not a number":       func(d *disk) error { return d.WriteFile("/pods/one/userns", []byte("x"), 0o644) },
		"empty":              func(d *disk) error { return d.WriteFile("/pods/one/userns", nil, 0o644) },
		"the host's own":     func(d *disk) error { return d.WriteFile("/pods/one/userns", []byte("0"), 0o644) },
		"negative":           func(d *disk) error { return d.WriteFile("/pods/one/userns", []byte("-65536"), 0o644) },
		"too large": func(d *disk) error {
			return d.WriteFile("/pods/one/userns", []byte("4294967296"), 0o644)
		},
		"between two ranges": func(d *disk) error { return d.WriteFile("/pods/one/userns", []byte("65537"), 0o644) },
	} {
		d := &disk{}
		m := &Manager{Files: d, Folders: d}
		first(t, m, "one")
		if err := spoil(d); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []string{"one", "two"} {
			if got, err := m.Mapping(podWithUsers(pod)); err == nil || !strings.Contains(err.Error(), "one") {
				t.Errorf("%s: pod %s has %v, %v", name, pod, got, err)
			}
		}
		if d.broken != "" {
			if _, err := m.Mapping(podWithUsers("two")); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	d := &disk{unlisted: true}
	m := &Manager{Files: d, Folders: d}
	if got, err := m.Mapping(podWithUsers("one")); !errors.Is(err, syscall.EIO) {
		t.Errorf("of unknown pods: %v, %v", got, err)
	}
}

// Two nodes may be on one machine: their pods do not all have the same ranges.
func TestRangesOfTwoNodes(t *testing.T) {
	same := 0
	one, two := &disk{}, &disk{}
	for i := range 10 {
		name := fmt.Sprint("pod", i)
		if first(t, &Manager{Files: one, Folders: one}, name) == first(t, &Manager{Files: two, Folders: two}, name) {
			same++
		}
	}
	if same == 10 {
		t.Error("ten pods each of two nodes have the same ranges")
	}
}

func TestRangesRunOut(t *testing.T) {
	d := &disk{}
	m := &Manager{Files: d, Folders: d}
	for i := range rangesOfNode {
		first(t, m, fmt.Sprint("pod", i))
	}
	if got, err := m.Mapping(podWithUsers("one more")); err == nil {
		t.Errorf("one more pod has %v", got)
	}
	if err := d.RemoveAll("/pods/pod3"); err != nil {
		t.Fatal(err)
	}
	first(t, m, "one more")
}
