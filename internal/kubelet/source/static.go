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
)

// maxManifest bounds a file or answer with manifests.
const maxManifest = 10 << 20

// known is what a static source has told so far.
type known map[types.UID]*v1.Pod

// tell sends the difference between what was told and what is there now.
func (k known) tell(ctx context.Context, name string, now []*v1.Pod, updates chan<- Update) {
	keep := make(map[types.UID]bool, len(now))
	for _, pod := range now {
		keep[pod.UID] = true
	}
	for uid, pod := range k {
		if !keep[uid] {
			delete(k, uid)
			send(ctx, updates, Update{Source: name, Pod: pod, Removed: true})
		}
	}
	for _, pod := range now {
		if k[pod.UID] == nil {
			k[pod.UID] = pod
			send(ctx, updates, Update{Source: name, Pod: pod})
		}
	}
}

// Folder feeds the pods of the manifests in a folder (or of one file) until
// ctx ends. It looks every period, and at once when the folder changes. A
// manifest that is there and cannot be read keeps the pods it had. The pods
// are complete once all manifests could be looked at.
func Folder(ctx context.Context, disk files.FS, path, nodeName string, period time.Duration, updates chan<- Update) {
	log := klog.FromContext(ctx)
	changed, stop := disk.Watch(path)
	defer stop()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	told := known{}
	f := &folder{disk: disk, path: path, nodeName: nodeName}
	ready := false
	for {
		now, err := f.look(log)
		if err != nil {
			log.Error(err, "Manifests of static pods cannot be read, their pods stay as they are", "path", path)
		}
		told.tell(ctx, FolderName, now, updates)
		if !ready && err == nil {
			ready = true
			send(ctx, updates, Update{Source: FolderName, Ready: true})
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
	byFile         map[string][]*v1.Pod // what was read last
}

// look returns the pods of all manifests. With an error some could not be
// read: what they had before is kept.
func (f *folder) look(log klog.Logger) (now []*v1.Pod, err error) {
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
			log.Error(err, "A static pod's manifest cannot be used", "file", p)
			pods = f.byFile[p]
		case err != nil:
			failed = append(failed, err)
			pods = f.byFile[p]
		}
		next[p] = pods
		now = append(now, pods...)
	}
	f.byFile = next
	return now, errors.Join(failed...)
}

// errManifest is what is wrong with the contents of a manifest.
var errManifest = errors.New("not a manifest of pods")

// read returns the pods of one manifest. One that is being written is empty at
// first and has the pods that it had.
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
	pods, err := decode(raw, FolderName, f.nodeName)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	return pods, nil
}

// manifests are the files to read; none if the path is not there.
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

// URL feeds the pods of the manifest at a URL, asking every period, until ctx
// ends. While it cannot be fetched the pods stay as they were; they are complete
// once it could be.
func URL(ctx context.Context, url string, header map[string][]string, nodeName string, period time.Duration, updates chan<- Update) {
	log := klog.FromContext(ctx)
	client := &http.Client{Timeout: 10 * time.Second}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	told := known{}
	ready := false
	for {
		pods, err := fetch(ctx, client, url, header, nodeName)
		if err != nil {
			log.Error(err, "The manifest of static pods cannot be used", "url", url)
		} else {
			told.tell(ctx, URLName, pods, updates)
		}
		if !ready && err == nil {
			ready = true
			send(ctx, updates, Update{Source: URLName, Ready: true})
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
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
	return decode(raw, URLName, nodeName)
}
