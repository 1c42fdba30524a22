// Package userns gives pods with a user namespace their ranges of ids on the
// host. It stands for upstream's user namespace manager.
package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Every pod with a user namespace has a range of ids of its own on the host.
const (
	idsPerPod    = 65536
	rangesOfNode = 110 * 4
	maxRangeFile = 64 // bytes of the file with a pod's first id
)

// Folders are those that pods have on the node.
type Folders interface {
	PodDir(uid types.UID) string
	// Known lists the pods that have one.
	Known() []types.UID
}

// Manager hands out ranges of ids.
type Manager struct {
	Files   files.FS
	Folders Folders

	mu sync.Mutex // one pod at a time looks for a range that is free
}

// Mapping is the pod's mapping of ids, nil for a pod with the host's users. It
// is kept in the pod's folder, so that it stays the same as long as the pod
// lives.
func (m *Manager) Mapping(pod *v1.Pod) (*runtimeapi.UserNamespace, error) {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return nil, nil
	}
	path := filepath.Join(m.Folders.PodDir(pod.UID), "userns")
	raw, err := m.Files.ReadFile(path, maxRangeFile)
	if err == nil {
		first, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			return nil, fmt.Errorf("read the pod's id range from %s: %w", path, err)
		}
		return mapping(uint32(first)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := map[int]bool{}
	for _, uid := range m.Folders.Known() {
		if raw, err := m.Files.ReadFile(filepath.Join(m.Folders.PodDir(uid), "userns"), maxRangeFile); err == nil {
			if first, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
				taken[first] = true
			}
		}
	}
	for i := 1; i <= rangesOfNode; i++ {
		first := i * idsPerPod
		if taken[first] {
			continue
		}
		if err := m.Files.MkdirAll(m.Folders.PodDir(pod.UID), 0o750); err != nil {
			return nil, err
		}
		if err := m.Files.Replace(path, []byte(strconv.Itoa(first)), 0o644); err != nil {
			return nil, err
		}
		return mapping(uint32(first)), nil
	}
	return nil, fmt.Errorf("no range of user ids is left for the pod: %d are taken", rangesOfNode)
}

func mapping(first uint32) *runtimeapi.UserNamespace {
	ids := []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: idsPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}
