// Package imagestore lists, loads and removes the images of a container runtime,
// for the command line. It speaks CRI, and runs containerd's own client for
// archives, which CRI does not know.
package imagestore

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/containerd"
)

// Image is an image of a runtime.
type Image struct {
	ID     string   `json:"id"`
	Names  []string `json:"names"`            // with tags
	Digest []string `json:"digest,omitempty"` // names with digests
	Size   uint64   `json:"size"`             // bytes, compressed
	Pinned bool     `json:"pinned"`           // is kept when the disk is full
}

// ErrNotFound reports that the runtime has no image of a name.
var ErrNotFound = errors.New("there is no such image")

// Store is the images of one runtime. Close it after use.
type Store struct {
	socket  string
	program string // ctr; "" if the runtime may not be containerd
	conn    *grpc.ClientConn
	images  runtimeapi.ImageServiceClient
	pods    runtimeapi.RuntimeServiceClient
}

// Open returns the store of the runtime that listens on an endpoint, such as
// unix:///run/containerd/containerd.sock. It does not connect yet. ctr is the
// path of containerd's client, without which Load and Save fail.
func Open(endpoint, ctr string) (*Store, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &Store{
		socket: strings.TrimPrefix(endpoint, "unix://"), program: ctr, conn: conn,
		images: runtimeapi.NewImageServiceClient(conn), pods: runtimeapi.NewRuntimeServiceClient(conn),
	}, nil
}

// Close closes the connection.
func (s *Store) Close() error { return s.conn.Close() }

// List returns all images, in the order of their names.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	answer, err := s.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, rpc(err)
	}
	list := make([]Image, 0, len(answer.Images))
	for _, i := range answer.Images {
		list = append(list, Image{ID: i.Id, Names: slices.Sorted(slices.Values(i.RepoTags)), Digest: i.RepoDigests, Size: i.Size, Pinned: i.Pinned})
	}
	slices.SortFunc(list, func(a, b Image) int {
		return slices.Compare(append(slices.Clone(a.Names), a.ID), append(slices.Clone(b.Names), b.ID))
	})
	return list, nil
}

// Pull pulls an image from its registry, or a mirror of it that the runtime is
// configured with, and returns its name in full. Without a login, it uses the
// runtime's.
func (s *Store) Pull(ctx context.Context, name string, login Login) (string, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", err
	}
	full := named.String()
	if _, err := s.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: full}, Auth: login.auth(named)}); err != nil {
		return "", rpc(err)
	}
	return full, nil
}

// Remove removes a name of an image, and the image with its last name or if name
// is its ID. It fails if a container uses the image, and for the image of the
// sandboxes, without which no pod starts.
func (s *Store) Remove(ctx context.Context, name string) error {
	image, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	full, _ := complete(name)
	if slices.Contains(image.RepoTags, containerd.SandboxImage) && (full == containerd.SandboxImage || !slices.Contains(image.RepoTags, full)) {
		return errors.New("every pod needs it for its sandbox")
	}
	if len(image.RepoTags) > 1 && slices.Contains(image.RepoTags, full) && s.program != "" {
		return s.ctr(ctx, nil, io.Discard, "rm", full)
	}
	containers, err := s.pods.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return rpc(err)
	}
	for _, c := range containers.Containers {
		if c.ImageId == image.Id || c.ImageRef == image.Id {
			return fmt.Errorf("container %s of pod %s/%s uses it: delete the pod first", c.Metadata.GetName(), c.Labels["io.kubernetes.pod.namespace"], c.Labels["io.kubernetes.pod.name"])
		}
	}
	_, err = s.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image.Id}})
	return rpc(err)
}

// find returns the image of a name, or of an ID or the beginning of one.
func (s *Store) find(ctx context.Context, name string) (*runtimeapi.Image, error) {
	if image, err := s.byID(ctx, name); image != nil || err != nil {
		return image, err
	}
	full, err := complete(name)
	if err != nil {
		return nil, err
	}
	answer, err := s.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: full}})
	if err != nil {
		return nil, rpc(err)
	}
	if answer.Image == nil {
		return nil, ErrNotFound
	}
	return answer.Image, nil
}

// byID returns the image whose ID begins with id, or nil if there is none or id
// cannot be one.
func (s *Store) byID(ctx context.Context, id string) (*runtimeapi.Image, error) {
	const shortest = 6
	id = strings.TrimPrefix(id, "sha256:")
	if len(id) < shortest || strings.Trim(id, "0123456789abcdef") != "" {
		return nil, nil
	}
	answer, err := s.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, rpc(err)
	}
	var found *runtimeapi.Image
	for _, image := range answer.Images {
		if !strings.HasPrefix(strings.TrimPrefix(image.Id, "sha256:"), id) {
			continue
		}
		if found != nil {
			return nil, errors.New("several images have an ID that begins so")
		}
		found = image
	}
	return found, nil
}

// Load imports the images of an archive: the output of docker save or podman
// save, or an OCI image layout in a tar file, which may be compressed by gzip. It
// returns their names. They are pinned: image garbage collection keeps them,
// because no registry may have them. If Load fails, it removes the names that it
// has added, and no images that the kubelet and other clients add at the same
// time.
func (s *Store) Load(ctx context.Context, archive io.Reader) ([]string, error) {
	archive, err := uncompressed(archive)
	if err != nil {
		return nil, err
	}
	before, err := s.names(ctx, "")
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	names, err := s.load(ctx, archive, id)
	if err == nil {
		return names, nil
	}
	// An image whose layers are damaged has a name already.
	own, listErr := s.names(context.WithoutCancel(ctx), fmt.Sprintf("labels.%q==%s", loadLabel, id))
	if listErr != nil {
		return nil, errors.Join(err, listErr)
	}
	for _, name := range own {
		if !slices.Contains(before, name) {
			err = errors.Join(err, s.ctr(context.WithoutCancel(ctx), nil, io.Discard, "rm", name))
		}
	}
	return nil, err
}

// loadLabel is the label of containerd's images with an ID of the Load that made
// them.
const loadLabel = "coracle.internal/load"

// uncompressed returns the content of an archive, which gzip may have
// compressed.
func uncompressed(archive io.Reader) (io.Reader, error) {
	r := bufio.NewReader(archive)
	magic, err := r.Peek(2)
	switch {
	case errors.Is(err, io.EOF) && len(magic) == 0:
		return nil, errors.New("the archive is empty")
	case err == nil && magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(r)
	}
	return r, nil
}

// names returns containerd's names of the images that match a filter.
func (s *Store) names(ctx context.Context, filter string) ([]string, error) {
	var output bytes.Buffer
	err := s.ctr(ctx, nil, &output, "ls", "--quiet", filter)
	return strings.Fields(output.String()), err
}

// load imports the images of an archive and labels them with the ID of the load.
func (s *Store) load(ctx context.Context, archive io.Reader, id string) ([]string, error) {
	var output bytes.Buffer
	err := s.ctr(ctx, archive, &output, "import", "--local", "--snapshotter", "overlayfs",
		"--label", "io.cri-containerd.pinned=pinned", "--label", loadLabel+"="+id, "-")
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && strings.Contains(err.Error(), "might be filtered out"):
		return nil, fmt.Errorf("the archive has no image for linux/%s, which is this machine's architecture", runtime.GOARCH)
	case err != nil:
		return nil, fmt.Errorf("%w: want the output of docker save or podman save, or an OCI image layout in a tar file", err)
	}
	var names []string
	for _, line := range strings.Split(output.String(), "\n") {
		// unpacking docker.io/library/busybox:latest (sha256:…)...done
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "unpacking" {
			names = append(names, fields[1])
		}
	}
	if len(names) == 0 {
		return nil, errors.New("the archive has no image with a name and of this machine's architecture: save it by its name, such as docker save NAME:TAG")
	}
	return names, nil
}

// Save writes images to an archive in the format of docker save, which is an
// OCI image layout as well.
func (s *Store) Save(ctx context.Context, archive io.Writer, names ...string) error {
	args := []string{"export", "--local", "-"}
	for _, name := range names {
		image, err := s.find(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		full, err := complete(name)
		switch {
		case err == nil && slices.Contains(image.RepoTags, full):
			args = append(args, full)
		case len(image.RepoTags) > 0: // name is an ID
			args = append(args, image.RepoTags...)
		default:
			return fmt.Errorf("%s: the image has no name", name)
		}
	}
	return s.ctr(ctx, nil, archive, args...)
}

// ctr runs containerd's client on images.
func (s *Store) ctr(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	if s.program == "" {
		return errors.New("this cluster has a container runtime of its own: use the client of that runtime, such as ctr --namespace=k8s.io images import FILE")
	}
	cmd := exec.CommandContext(ctx, s.program, append([]string{"--address", s.socket, "--namespace", containerd.Namespace, "images"}, args...)...)
	var problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &problem
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, line := range slices.Backward(strings.Split(problem.String(), "\n")) {
			if cause, ok := strings.CutPrefix(line, "ctr: "); ok { // others are warnings
				return errors.New(cause)
			}
		}
		return err
	}
	return nil
}

// complete returns the full form of an image's name: with the registry docker.io
// and the tag latest, if it has none.
func complete(name string) (string, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// rpc returns an error of the runtime without the words of gRPC.
func rpc(err error) error {
	s, ok := status.FromError(err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return err
	case s.Code() == codes.Unavailable:
		return fmt.Errorf("the container runtime does not answer: %s", s.Message())
	case s.Code() == codes.Canceled:
		return context.Canceled
	}
	return errors.New(s.Message())
}
