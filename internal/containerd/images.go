package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// loadImages imports the archives of the bundle whose images are missing, in
// parallel.
func (r *Runtime) loadImages(ctx context.Context, conn *grpc.ClientConn) error {
	archives, err := filepath.Glob(filepath.Join(r.config.BundleDir, "images", "*.tar"))
	if err != nil {
		return err
	}
	return supervise.Each(archives, func(archive string) error { return r.loadImage(ctx, conn, archive) })
}

func (r *Runtime) loadImage(ctx context.Context, conn *grpc.ClientConn, path string) error {
	want, err := readArchive(path)
	if err != nil {
		return fmt.Errorf("image archive %s: %w", path, err)
	}
	if id, err := imageID(ctx, conn, want.name); err != nil || id == want.id {
		return err
	}
	started := time.Now()
	if err := r.ImportImage(ctx, path); err != nil {
		return err
	}
	// The CRI learns about the image from containerd's events a moment later.
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		id, err := imageID(ctx, conn, want.name)
		if err != nil {
			return err
		}
		if id == want.id {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	klog.FromContext(ctx).V(2).Info("Imported image", "image", want.name, "took", time.Since(started).Round(time.Millisecond))
	return nil
}

// ImportImage imports the images of an archive (an OCI layout or the output of
// `docker save`, as a tar file) under the names in the archive. They are
// pinned: image garbage collection does not remove them, because no registry
// has them. The import ends when this process ends, for any reason.
func (r *Runtime) ImportImage(ctx context.Context, path string) error {
	runtime.LockOSThread() // the child is killed when this thread ends
	defer runtime.UnlockOSThread()
	cmd := r.ctr(ctx, "images", "import", "--local", "--snapshotter", "overlayfs", "--label", "io.cri-containerd.pinned=pinned", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing image archive %s: %w: %s", path, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// archivedImage is the image of an archive of the bundle.
type archivedImage struct {
	name string
	// id is the digest of its configuration, as the CRI reports it.
	id string
}

// readArchive reads the beginning of an OCI layout with one image: index.json
// is first, and the manifest precedes the layers.
func readArchive(path string) (archivedImage, error) {
	f, err := os.Open(path)
	if err != nil {
		return archivedImage{}, err
	}
	defer func() { _ = f.Close() }()
	r := tar.NewReader(f)
	header, err := r.Next()
	if err != nil {
		return archivedImage{}, err
	}
	if header.Name != "index.json" {
		return archivedImage{}, errors.New("it does not begin with index.json; rebuild it with: make bundle")
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.NewDecoder(r).Decode(&index); err != nil {
		return archivedImage{}, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) != 1 {
		return archivedImage{}, fmt.Errorf("it has %d images, want one", len(index.Manifests))
	}
	manifest := index.Manifests[0]
	blob := "blobs/" + strings.Replace(manifest.Digest, ":", "/", 1)
	for header.Name != blob {
		if header, err = r.Next(); err != nil {
			return archivedImage{}, fmt.Errorf("looking for manifest %s: %w", blob, err)
		}
	}
	var content bytes.Buffer
	if _, err := io.Copy(&content, io.LimitReader(r, 1<<20)); err != nil {
		return archivedImage{}, err
	}
	var parsed struct{ Config struct{ Digest string } }
	if err := json.Unmarshal(content.Bytes(), &parsed); err != nil {
		return archivedImage{}, fmt.Errorf("manifest %s: %w", manifest.Digest, err)
	}
	return archivedImage{name: manifest.Annotations["io.containerd.image.name"], id: parsed.Config.Digest}, nil
}
