// Package userns assigns ranges of user and group ids of the host to pods with
// user namespaces. It corresponds to upstream's user namespace manager.
package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/podquery"
)

const (
	idsPerPod    = 65536
	rangesOfNode = 110 * 4
	maxRangeFile = 64 // bytes of the file with a pod's first id
)

// Folders are the directories that pods have on the node.
type Folders interface {
	PodDir(uid types.UID) string
	// Known lists the pods that have a directory.
	Known() ([]types.UID, error)
}

// Manager assigns ranges of ids. The first id of a pod's range is kept in a file
// in the pod's directory, so that the range stays the same as long as the pod
// lives, and is free once the directory is gone. Its methods may be called from
// any goroutine.
type Manager struct {
	Files   files.FS
	Folders Folders

	mu sync.Mutex // held while a range is chosen
}

// Mapping returns the pod's mapping of ids, choosing a range that no other pod
// has. It returns nil for a pod in the host's user namespace. It fails if it
// cannot determine the range of each pod of the node: two pods with one range
// would have access to each other's files.
func (m *Manager) Mapping(pod *v1.Pod) (*runtimeapi.UserNamespace, error) {
	if !podquery.HasUserNamespace(&pod.Spec) {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first, err := m.read(pod.UID)
	if err == nil {
		return mapping(first), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known, err := m.Folders.Known()
	if err != nil {
		return nil, fmt.Errorf("list the ranges of user ids of other pods: %w", err)
	}
	taken := map[uint32]bool{}
	for _, uid := range known {
		first, err := m.read(uid)
		switch {
		case err == nil:
			taken[first] = true
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	// Nodes of one machine do not know each other's ranges: chosen at random, as
	// upstream's are, they are seldom the same.
	start := rand.Uint32N(rangesOfNode)
	for i := range uint32(rangesOfNode) {
		first := ((start+i)%rangesOfNode + 1) * idsPerPod
		if taken[first] {
			continue
		}
		if err := m.Files.MkdirAll(m.Folders.PodDir(pod.UID), 0o750); err != nil {
			return nil, err
		}
		if err := m.Files.Replace(m.file(pod.UID), []byte(strconv.FormatUint(uint64(first), 10)), 0o644); err != nil {
			return nil, err
		}
		return mapping(first), nil
	}
	return nil, fmt.Errorf("no range of user ids is left for the pod: %d are taken", rangesOfNode)
}

func (m *Manager) file(uid types.UID) string { return filepath.Join(m.Folders.PodDir(uid), "userns") }

// read returns the first id of a pod's range. A pod without a range is an
// fs.ErrNotExist.
func (m *Manager) read(uid types.UID) (uint32, error) {
	raw, err := m.Files.ReadFile(m.file(uid), maxRangeFile)
	if err != nil {
		return 0, fmt.Errorf("read the range of user ids of pod %s: %w", uid, err)
	}
	first, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 32)
	if err != nil || first%idsPerPod != 0 || first < idsPerPod || first > rangesOfNode*idsPerPod {
		return 0, fmt.Errorf("%s does not have the first id of a range of user ids: %q; deleting the pod %s frees its range", m.file(uid), raw, uid)
	}
	return uint32(first), nil
}

func mapping(first uint32) *runtimeapi.UserNamespace {
	ids := []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: idsPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}
