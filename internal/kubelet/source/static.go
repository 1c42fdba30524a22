package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
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
// manifest that cannot be read keeps the pods it had.
func Folder(ctx context.Context, fs files.FS, path, nodeName string, period time.Duration, updates chan<- Update) {
	log := klog.FromContext(ctx)
	changed, stop := fs.Watch(path)
	defer stop()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	told := known{}
	byFile := map[string][]*v1.Pod{}
	ready := false
	for {
		paths := []string{path}
		if mode, err := fs.Stat(path); err == nil && mode.IsDir() {
			paths = nil
			names, _ := fs.ReadDir(path)
			for _, n := range names {
				if !strings.HasPrefix(n, ".") {
					paths = append(paths, filepath.Join(path, n))
				}
			}
		}
		next := map[string][]*v1.Pod{}
		var now []*v1.Pod
		for _, p := range paths {
			raw, err := fs.ReadFile(p, maxManifest)
			if err == nil && len(strings.TrimSpace(string(raw))) == 0 {
				next[p] = byFile[p]
			} else if err == nil {
				next[p], err = decode(raw, FolderName, nodeName)
			}
			if err != nil && p != path {
				log.Error(err, "A static pod's manifest cannot be used", "file", p)
				next[p] = byFile[p]
			}
			now = append(now, next[p]...)
		}
		byFile = next
		told.tell(ctx, FolderName, now, updates)
		if !ready {
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

// URL feeds the pods of the manifest at a URL, asking every period, until ctx
// ends. While it cannot be fetched the pods stay as they were.
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
		if !ready {
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
