package volume

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Bounds of the files in the configMap, secret, downwardAPI and projected volumes
// of one pod, in bytes.
const (
	// maxContents bounds all of them: 64 objects of the largest size that the API
	// stores.
	maxContents = 64 << 20
	// maxRepeated bounds what they take beyond what their sources hold. The items
	// of a volume, and several volumes, may show the same key.
	maxRepeated = 4 << 20
	// blockSize is what the smallest file or directory takes.
	blockSize = 4 << 10
)

// maxTokens is how many different service account tokens and certificates a pod may
// have. The API server is asked for each, and each is renewed. One with an RSA key
// counts as costOfRSA of them: to make the key takes a processor up to seconds.
const (
	maxTokens = 100
	costOfRSA = 5
)

// blocks returns what a file of size bytes takes.
func blocks(size int) int64 { return max(int64(size)+blockSize-1, blockSize) / blockSize * blockSize }

// maxMounts is how many mounts the kubelet makes for a pod: of file systems, and
// of subPaths. The kernel has at most 100,000 mounts (fs.mount-max) for all pods,
// and each is looked for in a list of all.
const maxMounts = 512

// maxVolumes is how many volumes a pod may have. Each has directories of its own, is looked
// at in each sync, and is looked for by each mount of a container.
const maxVolumes = 1024

// maxVolumeMounts is how many mounts of volumes the containers of a pod may have together.
// The status of the pod, which has to be stored with it, shows them all.
const maxVolumeMounts = 20_000

// checkLists returns an error for a pod with more volumes and references than a
// node serves.
func checkLists(pod *v1.Pod) error {
	if n := len(pod.Spec.Volumes); n > maxVolumes {
		return fmt.Errorf("the pod has %d volumes; a node sets up at most %d of a pod", n, maxVolumes)
	}
	mounts, all := 0, 0
	for i := range pod.Spec.Volumes {
		switch vol := &pod.Spec.Volumes[i]; {
		case podquery.IsOnDisk(vol), vol.HostPath != nil, vol.Image != nil:
		default:
			mounts++
		}
	}
	for c := range podquery.AllContainers(&pod.Spec) {
		all += len(c.VolumeMounts)
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" || m.SubPathExpr != "" {
				mounts++
			}
		}
	}
	if all > maxVolumeMounts {
		return fmt.Errorf("the pod's containers have %d mounts of volumes; a node makes at most %d for a pod", all, maxVolumeMounts)
	}
	if mounts > maxMounts {
		return fmt.Errorf("the pod's volumes and subPaths need %d mounts; a node makes at most %d for a pod", mounts, maxMounts)
	}
	return spec.CheckReferences(pod)
}

// errTooLarge is the error of volumes with too many or too large files.
var errTooLarge = errors.New("the pod's configMap, secret, downwardAPI and projected volumes show too much")

// allowance counts the files of a pod's volumes before they are written. The
// kubelet writes them, so a tmpfs with them does not count for the pod's control
// group.
type allowance struct {
	sources     map[string]bool // counted in held
	held        int64           // by the sources
	files       int64
	directories int64
	tokens      map[string]bool // counted in requests
	requests    int             // for tokens and certificates, as much as they cost
}

// hold counts a source once, which holds so many bytes.
func (a *allowance) hold(source string, bytes int64) {
	if !a.sources[source] {
		if a.sources == nil {
			a.sources = map[string]bool{}
		}
		a.sources[source] = true
		a.held += bytes
	}
}

// add counts the difference that a file makes.
func (a *allowance) add(bytes int64) error {
	a.files += bytes
	return a.check()
}

func (a *allowance) check() error {
	if a.files > a.held+maxRepeated {
		return fmt.Errorf("%w: their files would take more than the %d bytes that the sources hold and %d bytes for what is shown more than once", errTooLarge, a.held, maxRepeated)
	}
	if a.files+a.directories > maxContents {
		return fmt.Errorf("%w: their files would take more than %d bytes", errTooLarge, maxContents)
	}
	return nil
}

// parents counts the directories above a path that are not in known, and adds
// them.
func (a *allowance) parents(path string, known map[string]bool) error {
	for end := strings.LastIndexByte(path, '/'); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if known[path[:end]] {
			return nil
		}
		known[path[:end]] = true
		a.directories += blockSize
		if err := a.check(); err != nil {
			return err
		}
	}
	return nil
}

// request counts a service account token or a certificate once, as so many of
// maxTokens.
func (a *allowance) request(token string, cost int) error {
	if !a.tokens[token] {
		if a.tokens == nil {
			a.tokens = map[string]bool{}
		}
		a.tokens[token] = true
		a.requests += cost
	}
	if a.requests > maxTokens {
		return fmt.Errorf("%w: more than %d different service account tokens and certificates, of which one with an RSA key counts as %d", errTooLarge, maxTokens, costOfRSA)
	}
	return nil
}
