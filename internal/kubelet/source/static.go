package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/supervise"
)

// maxManifest bounds a file or answer with manifests.
const maxManifest = 10 << 20

// deliveredPods are the pods that a static source has sent, by UID.
type deliveredPods map[types.UID]*v1.Pod

// update sends the differences between the pods that were sent before and pods. A
// manifest that has changed is another pod, also if it says which UID the pod has.
// Of several pods with a UID it sends the first.
func (d deliveredPods) update(ctx context.Context, name string, pods []*v1.Pod, updates chan<- Update) {
	keep := make(map[types.UID]string, len(pods))
	for _, pod := range slices.Backward(pods) {
		keep[pod.UID] = pod.Annotations[AnnotationHash]
	}
	for uid, pod := range d {
		if keep[uid] != pod.Annotations[AnnotationHash] {
			delete(d, uid)
			send(ctx, updates, Update{Source: name, Pod: pod, Removed: true})
		}
	}
	for _, pod := range pods {
		if d[pod.UID] == nil {
			d[pod.UID] = pod
			if warning := priorityWarning(&pod.Spec); warning != "" {
				klog.FromContext(ctx).Info(warning, "pod", klog.KObj(pod), "source", name)
			}
			send(ctx, updates, Update{Source: name, Pod: pod})
		}
	}
}

// watchFolder sends the pods of the manifests in a directory, or of one file, until
// ctx ends. It reads them every period, and when the directory changes. A
// manifest that exists but cannot be read keeps its last pods. watchFolder sends
// Ready once it has read all manifests.
func watchFolder(ctx context.Context, disk files.FS, path, nodeName string, period time.Duration, updates chan<- Update) {
	log := klog.FromContext(ctx)
	changed, stop := disk.Watch(path)
	defer stop()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	delivered := deliveredPods{}
	f := &folder{disk: disk, path: path, nodeName: nodeName}
	ready := false
	for {
		pods, err := f.list(log)
		if err != nil {
			log.Error(err, "Reading the manifests of static pods failed, their pods stay as they are", "path", path)
		}
		delivered.update(ctx, folderName, pods, updates)
		if !ready && err == nil {
			ready = true
			send(ctx, updates, Update{Source: folderName, Ready: true})
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
		}
	}
}

// folder reads the manifests at a path, which is a folder or a file.
type folder struct {
	disk           files.FS
	path, nodeName string
	byFile         map[string][]*v1.Pod // the pods that were read last
}

// list returns the pods of all manifests. If some cannot be read, it returns an
// error together with all pods; those manifests keep their last pods.
func (f *folder) list(log klog.Logger) (all []*v1.Pod, err error) {
	paths, err := f.manifests()
	if err != nil {
		paths = slices.Sorted(maps.Keys(f.byFile))
	}
	failed := []error{err}
	next := map[string][]*v1.Pod{}
	for _, p := range paths {
		pods, err := f.read(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, errManifest):
			log.Error(err, "Reading the manifest of a static pod failed", "file", p)
			pods = f.byFile[p]
		case err != nil:
			failed = append(failed, err)
			pods = f.byFile[p]
		}
		next[p] = pods
		all = append(all, pods...)
	}
	f.byFile = next
	return all, errors.Join(failed...)
}

// errManifest marks an error in the content of a manifest.
var errManifest = errors.New("not a manifest of pods")

// read returns the pods of one manifest. An empty file keeps its last pods,
// because a file is empty while it starts to be written.
func (f *folder) read(path string) ([]*v1.Pod, error) {
	if mode, err := f.disk.Stat(path); err == nil && !mode.IsRegular() {
		return nil, fmt.Errorf("%w: not a file", errManifest)
	}
	raw, err := f.disk.ReadFile(path, maxManifest)
	if errors.Is(err, files.ErrTooLarge) || errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return f.byFile[path], nil
	}
	pods, err := decode(raw, folderName, f.nodeName)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	return pods, nil
}

// manifests returns the paths of the manifests, none if the path does not exist.
func (f *folder) manifests() ([]string, error) {
	mode, err := f.disk.Stat(f.path)
	if err == nil && !mode.IsDir() {
		return []string{f.path}, nil
	}
	var names []string
	if err == nil {
		names, err = f.disk.ReadDir(f.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var paths []string
	for _, n := range names {
		if !strings.HasPrefix(n, ".") {
			paths = append(paths, filepath.Join(f.path, n))
		}
	}
	return paths, err
}

// watchURL sends the pods of the manifest at a URL, which it fetches every period,
// until ctx ends. If that fails, the pods stay as they are. watchURL sends Ready
// after the first success.
func watchURL(ctx context.Context, url string, header map[string][]string, nodeName string, period time.Duration, updates chan<- Update) {
	log := klog.FromContext(ctx)
	client := &http.Client{Timeout: 10 * time.Second}
	delivered := deliveredPods{}
	ready := false
	supervise.Repeat(ctx, period, func() {
		pods, err := fetch(ctx, client, url, header, nodeName)
		if err != nil {
			log.Error(err, "Fetching the manifest of static pods failed", "url", url)
		} else {
			delivered.update(ctx, urlName, pods, updates)
		}
		if !ready && err == nil {
			ready = true
			send(ctx, updates, Update{Source: urlName, Ready: true})
		}
	})
}

func fetch(ctx context.Context, client *http.Client, url string, header map[string][]string, nodeName string) ([]*v1.Pod, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for k, values := range header {
		request.Header[http.CanonicalHeaderKey(k)] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, response.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxManifest {
		return nil, fmt.Errorf("%s answered more than %d bytes", url, maxManifest)
	}
	return decode(raw, urlName, nodeName)
}
