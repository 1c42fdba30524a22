package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/imagestore"
)

// imageCommand has commands for the images of a cluster's nodes.
func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Load, list, pull, save and remove the images of a cluster's nodes",
		Long: `Load, list, pull, save and remove the images of a cluster's nodes.

A cluster with several nodes on this machine has images for each. Load, pull and
remove are for all of them, list and save for the first, unless --node names one.`,
		Example: `  coracle image load web.tar
  coracle image list`,
		GroupID: "cluster",
		Args:    wantSubcommand("load", "list", "pull", "save", "remove"),
		Run:     func(*cobra.Command, []string) {},
	}
	of := &imageOwner{}
	nameFlag(cmd, cmd.PersistentFlags(), &of.cluster)
	cmd.PersistentFlags().StringVar(&of.node, "node", "", "name of one node on this machine")
	cmd.AddCommand(loadImageCommand(of), listImagesCommand(of), pullImageCommand(of), saveImageCommand(of), removeImageCommand(of))
	return cmd
}

func loadImageCommand(of *imageOwner) *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE...",
		Short: "Load images from archives",
		Long: `Load images from archives: the output of docker save or podman save, or OCI image
layouts in tar files. The file - is the standard input.

A name without a registry gets docker.io in front, as Docker has it: a pod finds
web:dev by that name. Images with the tag latest need imagePullPolicy:
IfNotPresent or Never in the pod, because Kubernetes pulls them anew by default.
The node keeps loaded images when its disk is full.`,
		Example: `  docker save web:dev | coracle image load -
  coracle image load --name=dev web.tar db.tar`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return of.onNodes(func(nodes []nodeImages) error {
				return each(cmd.Context(), files, func(file string) error {
					return loadImages(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), nodes, file)
				})
			})
		},
	}
}

// loadImages loads the images of a file, or of in for the file -, into nodes, and
// writes their names to out.
func loadImages(ctx context.Context, in io.Reader, out io.Writer, nodes []nodeImages, file string) error {
	opened, err := openArchive(in, file)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	archive, again := opened, func() error { return nil } // one node reads it once
	if len(nodes) > 1 {
		if archive, again, err = rereadable(opened, nodes[0].dataDir); err != nil {
			return err
		}
		defer func() { _ = archive.Close() }() // again, if it is the same
	}
	var errs []error
	for _, n := range nodes {
		if err := again(); err != nil {
			return err
		}
		names, err := interruptible(ctx, func() ([]string, error) { return n.store.Load(ctx, archive) })
		if err != nil {
			errs = append(errs, n.failed(err))
			continue
		}
		for _, name := range names {
			if err := n.report(out, "Loaded", name); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// openArchive opens an archive, which for the file - is in.
func openArchive(in io.Reader, file string) (io.ReadCloser, error) {
	if file != "-" {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no such file: give an archive, or pipe an image, as in docker save %s | coracle image load -", file)
		}
		if err != nil {
			return nil, errors.Unwrap(err)
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && info.Mode()&os.ModeNamedPipe == 0 {
			return nil, errors.Join(err, f.Close(), errors.New("want a file"))
		}
		return f, nil
	}
	if isTerminal(in) {
		return nil, errors.New("the standard input is a terminal: pipe an archive into it, as in docker save NAME | coracle image load -")
	}
	return io.NopCloser(in), nil
}

// rereadable returns an archive that can be read again from where it begins, which
// again goes back to. A pipe is copied to a file without a name in dir.
func rereadable(archive io.ReadCloser, dir string) (file io.ReadCloser, again func() error, err error) {
	if f, ok := archive.(*os.File); ok {
		if begin, err := f.Seek(0, io.SeekCurrent); err == nil {
			return f, func() error { _, err := f.Seek(begin, io.SeekStart); return err }, nil
		}
	}
	f, err := os.CreateTemp(dir, ".images-*")
	if err != nil {
		return nil, nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = io.Copy(f, archive)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("copy the archive for several nodes: %w", err), f.Close())
	}
	return f, func() error { _, err := f.Seek(0, io.SeekStart); return err }, nil
}

func listImagesCommand(of *imageOwner) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images of a node",
		Example: `  coracle image list
  coracle image list -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return of.onFirst(func(store *imagestore.Store) error {
				images, err := store.List(cmd.Context())
				if err != nil {
					return err
				}
				return write(cmd.OutOrStdout(), output, imageList(images))
			})
		},
	}
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

// imageList is the output of image list.
type imageList []imagestore.Image

// WriteText writes one line for each name of an image.
func (l imageList) WriteText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { _ = w.Flush() }()
	_, _ = fmt.Fprintln(w, "IMAGE\tID\tSIZE")
	for _, i := range l {
		names := i.Names
		if len(names) == 0 {
			names = []string{"<none>"}
		}
		id := strings.TrimPrefix(i.ID, "sha256:")
		for _, name := range names {
			_, _ = fmt.Fprintf(w, "%s\t%.12s\t%.1f MiB\n", name, id, float64(i.Size)/(1<<20))
		}
	}
}

func pullImageCommand(of *imageOwner) *cobra.Command {
	user := ""
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Long: `Pull images from their registries, with the mirrors, certificates and logins of
the cluster (up --registries).

The login is that of --user, or else the one that docker login has stored in
$DOCKER_CONFIG/config.json or ~/.docker/config.json. It goes to the image's own
registry and to no mirror.`,
		Example: `  coracle image pull registry.example/web:1
  coracle image pull --user=me registry.example/web:1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, images []string) error {
			if user != "" {
				if err := imagestore.CheckOneRegistry(images); err != nil {
					return fmt.Errorf("--user: %w", err)
				}
			}
			given, err := readLogin(cmd, user)
			if err != nil {
				return err
			}
			return of.withEachImage(cmd, images, "Pulled", func(s *imagestore.Store, ctx context.Context, image string) (string, error) {
				login := given
				if login == (imagestore.Login{}) {
					var err error
					if login, err = imagestore.DockerLogin(ctx, imagestore.DockerConfig(), image); err != nil {
						return "", err
					}
				}
				return s.Pull(ctx, image, login)
			})
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", user, "user of the registry, or USER:PASSWORD (default: the password is asked for, or the first line of the standard input)")
	return cmd
}

// readLogin returns the login of --user. It reads a password that is missing
// from the standard input, without an echo if that is a terminal.
func readLogin(cmd *cobra.Command, user string) (imagestore.Login, error) {
	user, password, has := strings.Cut(user, ":")
	login := imagestore.Login{User: user, Password: password}
	switch {
	case user == "" && has:
		return login, errors.New("--user: want USER or USER:PASSWORD")
	case user == "" || has:
		return login, nil
	}
	in, fd := cmd.InOrStdin(), int(os.Stdin.Fd())
	if in == os.Stdin && isTerminal(in) {
		before, err := term.GetState(fd)
		if err != nil {
			return login, err
		}
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Password of %s: ", user)
		raw, err := interruptible(cmd.Context(), func() ([]byte, error) { return term.ReadPassword(fd) })
		_, _ = fmt.Fprintln(cmd.ErrOrStderr())
		login.Password = string(raw)
		return login, errors.Join(err, term.Restore(fd, before)) // an interrupted read leaves the echo off
	}
	line, err := interruptible(cmd.Context(), func() (string, error) { return bufio.NewReader(in).ReadString('\n') })
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	login.Password = strings.TrimRight(line, "\r\n")
	if err == nil && login.Password == "" || errors.Is(err, io.EOF) {
		err = errors.New("--user: the standard input has no password")
	}
	return login, err
}

func saveImageCommand(of *imageOwner) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "save IMAGE...",
		Short: "Save images to an archive",
		Long: `Save images to an archive, in the format of docker save, which is an OCI image
layout as well.`,
		Example: `  coracle image save -f web.tar web:dev
  coracle image save web:dev | docker load`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, images []string) error {
			return of.onFirst(func(store *imagestore.Store) error {
				if file != "" {
					return saveTo(file, func(out io.Writer) error { return store.Save(cmd.Context(), out, images...) })
				}
				if out := cmd.OutOrStdout(); !isTerminal(out) {
					return store.Save(cmd.Context(), out, images...)
				}
				return errors.New("the standard output is a terminal: give a file with --file, or pipe the archive")
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", file, "file to write (default: the standard output)")
	return cmd
}

// saveTo writes a file, which only its owner can read, and replaces an earlier
// one only if write succeeds. It writes to a device or a pipe directly.
func saveTo(file string, write func(io.Writer) error) error {
	inFlag := func(err error) error { return fmt.Errorf("--file=%s: %w", file, err) }
	path, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = file, nil
	}
	if err != nil {
		return inFlag(err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return inFlag(errors.Unwrap(err))
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return inFlag(errors.Unwrap(err))
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(inFlag(errors.Unwrap(err)), os.Remove(f.Name()))
	}
	return nil
}

func removeImageCommand(of *imageOwner) *cobra.Command {
	return &cobra.Command{
		Use:     "remove IMAGE...",
		Aliases: []string{"rm"},
		Short:   "Remove images that no container uses",
		Long: `Remove images that no container uses. Of an image with several names, only the
given one is removed. Given its ID, the image goes with all of its names.`,
		Example: `  coracle image remove web:dev`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, images []string) error {
			return of.withEachImage(cmd, images, "Removed", func(s *imagestore.Store, ctx context.Context, image string) (string, error) {
				return image, s.Remove(ctx, image)
			})
		},
	}
}

// imageOwner says whose images a command is for.
type imageOwner struct {
	cluster string
	node    string // "" for all nodes of the machine
}

// nodeImages are the images of a node.
type nodeImages struct {
	node    string // its name; "" if it is the only one
	dataDir string // of the cluster
	store   *imagestore.Store
}

// report writes what was done with an image.
func (n nodeImages) report(out io.Writer, done, image string) error {
	if n.node != "" {
		image += " on " + n.node
	}
	_, err := fmt.Fprintln(out, done, image)
	return err
}

// failed adds the name of the node to an error.
func (n nodeImages) failed(err error) error {
	if n.node == "" {
		return err
	}
	return fmt.Errorf("node %s: %w", n.node, err)
}

// withEachImage calls do with images on each node, and prints the names that it
// returns. A node without an image is an error if no node has it.
func (of *imageOwner) withEachImage(cmd *cobra.Command, images []string, done string, do func(*imagestore.Store, context.Context, string) (string, error)) error {
	return of.onNodes(func(nodes []nodeImages) error {
		return each(cmd.Context(), images, func(image string) error {
			var errs, missing []error
			for _, n := range nodes {
				name, err := do(n.store, cmd.Context(), image)
				switch {
				case errors.Is(err, imagestore.ErrNotFound):
					missing = append(missing, err)
				case err != nil:
					errs = append(errs, n.failed(err))
				default:
					if err := n.report(cmd.OutOrStdout(), done, name); err != nil {
						return err
					}
				}
			}
			if len(missing) == len(nodes) {
				return missing[0]
			}
			return errors.Join(errs...)
		})
	})
}

// each calls do for each argument, also after one has failed, until ctx ends.
func each(ctx context.Context, arguments []string, do func(string) error) error {
	var errs []error
	for _, argument := range arguments {
		if err := do(argument); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", argument, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// onFirst calls do with the images of the named node, or of the first one.
func (of *imageOwner) onFirst(do func(*imagestore.Store) error) error {
	return of.onNodes(func(nodes []nodeImages) error { return do(nodes[0].store) })
}

// onNodes calls do with the images of the named node, or of all nodes.
func (of *imageOwner) onNodes(do func([]nodeImages) error) (err error) {
	rec, err := mustFind(host.NewRegistry(host.Root()), of.cluster)
	if err != nil {
		return err
	}
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return err
	}
	if settings.Nodes == 0 {
		return fmt.Errorf("cluster %s has no node: it was started with --nodes=0", of.cluster)
	}
	if settings.Options.Node.ContainerRuntimeEndpoint == "" && !rec.Running() {
		return stoppedError(of.cluster)
	}
	o := settings.ClusterOptions()
	names := o.NodeNames()
	if of.node != "" && !slices.Contains(names, of.node) {
		return fmt.Errorf("--node=%s: want one of %s", of.node, strings.Join(names, ", "))
	}
	var nodes []nodeImages
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.store.Close())
		}
	}()
	for i, name := range names {
		if of.node != "" && of.node != name {
			continue
		}
		store, err := openImages(settings, o.NodeNumbers()[i])
		if err != nil {
			return err
		}
		n := nodeImages{dataDir: rec.DataDir, store: store}
		if len(names) > 1 {
			n.node = name
		}
		nodes = append(nodes, n)
	}
	return do(nodes)
}

// openImages returns the images of a node, numbered from 1.
func openImages(settings host.Settings, node int) (*imagestore.Store, error) {
	endpoint, ctr := settings.Options.Node.ContainerRuntimeEndpoint, ""
	if endpoint == "" {
		endpoint, ctr = "unix://"+host.ContainerdSocket(settings.Options.Name, node), filepath.Join(settings.Options.Node.BundleDir, "bin", "ctr")
	}
	return imagestore.Open(endpoint, ctr)
}
