package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/doctor"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/registries"
	"github.com/coracle-io/coracle/internal/supervise"
)

// upFlags are the flags of `coracle up`. The flags that describe the cluster
// are stored as its settings; the others apply to one command.
type upFlags struct {
	settings host.Settings // the values of all flags that are kept
	mirrors  []string      // REGISTRY=URL, which are added to the registries file
	// keepsRegistries is set if mirrors are added to the stored registries file.
	keepsRegistries bool
	foreground      bool
	existing        bool // a cluster that no longer exists is an error
	// join, if it is not nil, gives the node of this machine its identity in a cluster
	// of others before it starts.
	join func(context.Context, host.Record) error
	// keys, if it is not nil, writes the keys of the cluster of which this machine
	// becomes a server, before any are made.
	keys func(host.Record) error
	// severalServers lets other servers join a new cluster.
	severalServers bool
	timeout        time.Duration
	set            []string // names of the flags that the user has set, also by --config

	configFile string
	config     *host.Config     // the content of configFile; nil without one
	inline     *registries.File // the registries in config, if no flag names others
}

func upCommand() *cobra.Command {
	f := newUpFlags()
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine and return when it is ready",
		Long: `Start a cluster on this machine and return when it is ready.

The flags are stored with the cluster's data. After a crash, a stop or a restart
of the machine, up with the name alone starts the cluster as it was. Further flags
change the stored ones where that is possible, and up shows the changes. An
argument of a component replaces the one with the same name, and NAME- removes it:
--apiserver-arg=anonymous-auth-

A file given with --config says the same as flags do, which override it, and names
images to load and manifests to apply:

  apiVersion: coracle.io/v1alpha1
  kind: Cluster
  name: dev
  nodes: [{}, {labels: {disk: fast}, zone: b}]
  apiserverArgs: [anonymous-auth=false]
  images: [web.tar]
  manifests: [web.yaml]

Files in the directory manifests of the data directory are applied, too, and again
when they change.`,
		Example: `  coracle up
  coracle up --nodes=3
  coracle up --name=dev --nodes=0 --apiserver-arg=anonymous-auth=false
  coracle up --config=cluster.yaml
  coracle up --nodes=0 --simulated-nodes=100 --simulated-node-zones=a,b,c`,
		GroupID: "cluster",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Flags().Visit(func(flag *pflag.Flag) { f.set = append(f.set, flag.Name) })
			return up(cmd.Context(), f)
		},
	}
	f.bind(cmd.Flags())
	completeName(cmd)
	return cmd
}

// newUpFlags returns flags with their defaults, which are not bound yet.
func newUpFlags() *upFlags {
	return &upFlags{settings: host.NewSettings(), timeout: 2 * time.Minute}
}

func (f *upFlags) bind(fs *pflag.FlagSet) {
	f.settings.BindFlags(fs)
	fs.StringVar(&f.configFile, "config", f.configFile, "file that configures the cluster, of kind Cluster; flags override it")
	fs.StringArrayVar(&f.mirrors, "registry-mirror", nil, "mirror of a registry, such as docker.io=https://mirror.example, in addition to those of --registries, or to the stored ones")
	fs.BoolVar(&f.severalServers, "several-servers", f.severalServers, "let other machines join a new cluster as servers (coracle join --control-plane), or move such a server that is stopped to an address of this machine")
	fs.BoolVar(&f.foreground, "foreground", f.foreground, "stay in the foreground and log to the terminal")
	fs.DurationVar(&f.timeout, "timeout", f.timeout, "how long to wait for the cluster to be ready")
}

// check returns an error for values that are wrong by themselves, and makes
// paths absolute.
func (f *upFlags) check() error {
	s := &f.settings
	if s.Nodes < 0 || s.Nodes > clusterdefaults.MaxNodes {
		return fmt.Errorf("--nodes=%d: want the number of nodes on this machine, up to %d, or 0 for a control plane alone", s.Nodes, clusterdefaults.MaxNodes)
	}
	if s.Options.Name == "" || s.Options.BindAddress == "" {
		return errors.New("--name and --bind-address must not be empty: leave the flag out for its default")
	}
	if err := cluster.Check(cluster.Options{
		ControlPlane: s.Options.ControlPlane, Name: s.Options.Name, NodeName: s.Options.NodeName, BindAddress: s.Options.BindAddress, LogLevels: s.Options.LogLevels, Ports: s.Options.Ports, Simulated: s.Options.Simulated,
	}); err != nil {
		return err
	}
	if slices.Contains(f.set, "controllers") && len(s.Options.ControlPlane.Controllers) == 0 {
		return errors.New("--controllers=: want a list, or -* for none")
	}
	if f.hasImages() && (s.Nodes == 0 || f.foreground) {
		return fmt.Errorf("%s: images: want a node on this machine, and a start without --foreground: load them with coracle image load", f.configFile)
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout=%v: want a duration, such as 2m", f.timeout)
	}
	if err := f.readRegistries(); err != nil {
		return err
	}
	return s.Absolute()
}

// readConfig reads --config and sets the flags that the user has not set.
func (f *upFlags) readConfig() (err error) {
	if !slices.Contains(f.set, "config") {
		return nil
	}
	if f.config, err = host.ReadConfig(f.configFile); err != nil {
		return inEachLine(cmp.Or(f.configFile, "--config="), err)
	}
	if !slices.Contains(f.set, "registries") {
		f.inline = f.config.Registries
	}
	if listed, given := f.config.ListedNodes(), f.settings.Nodes; listed > 0 && listed != given && slices.Contains(f.set, "nodes") {
		return fmt.Errorf("--nodes=%d and nodes of %s, a list of %d: want the same number, or one of the two", given, f.configFile, listed)
	}
	f.set = f.config.Apply(&f.settings, f.set)
	return nil
}

// inFields returns an error that names fields of --config in place of flags that
// the file has set.
func (f *upFlags) inFields(err error) error {
	if err == nil || f.config == nil {
		return err
	}
	text := inFlags(err)
	if named := f.config.Named(text); named != text {
		return fieldsError{err, named}
	}
	return err
}

// fieldsError is an error with another text.
type fieldsError struct {
	error
	text string
}

func (e fieldsError) Error() string { return e.text }
func (e fieldsError) Unwrap() error { return e.error }

// readRegistries replaces the path in --registries by the content of the file, to
// which it adds --registry-mirror.
func (f *upFlags) readRegistries() error {
	file, path := &registries.File{}, f.settings.Options.Node.Registries
	if f.inline != nil {
		file = f.inline
	}
	f.keepsRegistries = len(f.mirrors) > 0 && !slices.Contains(f.set, "registries")
	if path != "" {
		var err error
		if file, err = registries.Read(path); err != nil {
			return inEachLine("--registries="+path, err)
		}
	}
	if len(f.mirrors) > 0 {
		f.set = append(f.set, "registries")
	}
	return f.addMirrors(file)
}

// keepRegistries adds --registry-mirror to the stored registries of a cluster, if
// --registries does not replace them.
func (f *upFlags) keepRegistries(kept host.Settings) error {
	if !f.keepsRegistries || kept.Options.Node == nil {
		return nil
	}
	file, err := registries.Parse(kept.Options.Node.Registries)
	if err != nil {
		return inEachLine("stored --registries", err)
	}
	return f.addMirrors(file)
}

// addMirrors makes a registries file with --registry-mirror the one of the
// cluster.
func (f *upFlags) addMirrors(file *registries.File) error {
	for _, mirror := range f.mirrors {
		if err := file.AddMirror(mirror); err != nil {
			return inEachLine("--registry-mirror", err) // the value may have a login
		}
	}
	f.settings.Options.Node.Registries = file.String()
	return nil
}

// inEachLine puts a flag before each line of an error.
func inEachLine(flag string, err error) error {
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		errs = append(errs, fmt.Errorf("%s: %s", flag, line))
	}
	return errors.Join(errs...)
}

func up(ctx context.Context, f *upFlags) error {
	if err := f.readConfig(); err != nil {
		return err
	}
	return f.inFields(f.up(ctx))
}

func (f *upFlags) up(ctx context.Context) error {
	if err := f.check(); err != nil {
		return err
	}
	registry := host.NewRegistry(host.Root())
	const attempts = 5
	for range attempts - 1 {
		lost, err := f.start(ctx, registry, true)
		if lost == 0 || err != nil {
			return err
		}
		fmt.Printf("Port %d was taken meanwhile; choosing another.\n", lost)
	}
	_, err := f.start(ctx, registry, false)
	return err
}

// start starts the cluster once. If again is set and a new cluster could not have
// the port that was chosen for it, start removes it and returns the port as lost:
// a cluster of another user, with whom this one shares no lock, may have chosen the
// same.
func (f *upFlags) start(ctx context.Context, registry host.Registry, again bool) (lost int, err error) {
	p, rec, err := f.claim(ctx, registry)
	for err == nil && p == nil {
		err = f.alreadyUp(ctx, registry, rec)
		switch {
		case err == nil:
			return 0, f.provideImages(ctx, rec)
		case !errors.Is(err, errEnded):
			return 0, f.withoutImages(err)
		}
		p, rec, err = f.claim(ctx, registry)
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.claim.Lock.Release() }()
	if f.keys != nil {
		err = f.keys(p.record)
	}
	if err == nil {
		err = errors.Join(p.makeReady(), p.startsWithOld("manifests", f.storeManifests(ctx, p.record)))
	}
	switch {
	case err != nil:
	case f.join != nil:
		err = f.join(ctx, p.record)
	case p.record.Node.Joined != nil:
		err = checkIdentity(p.record)
	}
	if err = failedStart(err); err == nil {
		if f.foreground {
			err = failedStart(p.runInForeground())
		} else if err = runInBackground(ctx, f, p); err == nil {
			return 0, f.provideImages(ctx, p.record)
		}
	}
	var failed startError
	undo := !p.keeps() && errors.As(err, &failed)
	if port := f.lostPort(p.settings); undo && again && port != 0 && ctx.Err() == nil {
		return port, rollBack(ctx, p.record, p.claim)
	}
	if failed.cause == nil {
		err = f.withoutImages(err)
	}
	err = reportFailure(ctx, os.Stderr, f.inFields(err), func() (doctor.Report, error) { return doctor.Examine(registry, p.settings, warn) })
	if undo {
		return 0, errors.Join(err, rollBack(ctx, p.record, p.claim))
	}
	return 0, err
}

// storeManifests stores the manifests of --config before the cluster starts, so
// that it applies no others. Manifests beside images are stored by provideImages,
// when the images are there: a pod must not pull what a registry has under the same
// name. Until then storeManifests removes those that have changed.
func (f *upFlags) storeManifests(ctx context.Context, rec host.Record) error {
	switch {
	case f.config == nil || f.config.Manifests == nil:
		return nil
	case f.hasImages():
		return host.WithdrawManifests(ctx, rec.DataDir, f.config.Manifests)
	}
	return host.KeepManifests(ctx, rec.DataDir, f.config.Manifests)
}

// provideImages loads the images of --config into the nodes of a running cluster,
// and stores the manifests that need them.
func (f *upFlags) provideImages(ctx context.Context, rec host.Record) error {
	if !f.hasImages() {
		return nil
	}
	err := f.loadImages(ctx, rec)
	if f.config.Manifests != nil {
		err = errors.Join(err, host.KeepManifests(ctx, rec.DataDir, f.config.Manifests))
	}
	return err
}

func (f *upFlags) hasImages() bool { return f.config != nil && f.config.HasImages() }

// loadImages loads the images of --config: those for all nodes, and those for each.
func (f *upFlags) loadImages(ctx context.Context, rec host.Record) error {
	load := func(of *imageOwner, files []string) error {
		if len(files) == 0 {
			return nil
		}
		return of.onNodes(func(nodes []nodeImages) error {
			return each(ctx, files, func(file string) error { return loadImages(ctx, nil, os.Stdout, nodes, file) })
		})
	}
	errs := []error{load(&imageOwner{cluster: rec.Name}, f.config.Images)}
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for i, name := range settings.ClusterOptions().NodeNames() {
		if i < len(f.config.NodeImages) {
			errs = append(errs, load(&imageOwner{cluster: rec.Name, node: name}, f.config.NodeImages[i]))
		}
	}
	return errors.Join(errs...)
}

// withoutImages adds to the error of a cluster that is not ready that provideImages
// was not called.
func (f *upFlags) withoutImages(err error) error {
	if err == nil || !f.hasImages() {
		return err
	}
	return fmt.Errorf("%w; images and manifests of %s are not there yet: run up with the file again", err, f.configFile)
}

// lostPort returns the port of the API server if it was chosen for the cluster and
// something else listens on it, and 0 otherwise.
func (f *upFlags) lostPort(s host.Settings) int {
	port := s.Options.Ports.Secure
	if slices.Contains(f.set, "secure-port") || host.PortsFree(s.Options.BindAddress, map[string]int{"--secure-port": port}) == nil {
		return 0
	}
	return port
}

// claim prepares the cluster, or returns the record of a running one. While
// another command starts or ends the cluster, claim waits, up to --timeout.
func (f *upFlags) claim(ctx context.Context, registry host.Registry) (p *prepared, running host.Record, err error) {
	deadline := time.Now().Add(f.timeout)
	for waiting := false; ; waiting = true {
		rec, err := f.found(registry)
		if err != nil || rec.Running() {
			return nil, rec, err
		}
		err = registry.Locked(ctx, func() (err error) {
			p, err = f.prepare(ctx, registry)
			return err
		})
		var busy *host.BusyError
		if !errors.As(err, &busy) || time.Now().After(deadline) {
			return p, rec, err
		}
		if !waiting {
			fmt.Printf("Process %d is starting or ending cluster %s; waiting for it.\n", busy.PID, busy.Cluster)
		}
		if !supervise.Pause(ctx, claimRetry) {
			return nil, rec, ctx.Err()
		}
	}
}

// claimRetry is the interval at which claim retries while another command holds
// the cluster.
const claimRetry = 100 * time.Millisecond

// startError is the error of a cluster that ended before it was ready. A new
// cluster is then removed.
type startError struct{ cause error }

func (e startError) Error() string { return e.cause.Error() }
func (e startError) Unwrap() error { return e.cause }

// failedStart wraps the error of a start as a startError; nil stays nil.
func failedStart(cause error) error {
	if cause == nil {
		return nil
	}
	return startError{cause}
}

func bundleBesideBinary() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(exe), "bundle"), nil
}
