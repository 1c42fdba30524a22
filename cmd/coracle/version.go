package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/coracle-io/coracle/internal/version"
)

// versions are the versions of this program and its parts. A program reads its
// JSON form: fields keep their names.
type versions struct {
	Coracle    string         `json:"coracle"`
	Kubernetes string         `json:"kubernetes"`     // whose API it serves
	Etcd       string         `json:"etcd,omitempty"` // the embedded one
	Go         string         `json:"go"`
	Platform   string         `json:"platform"` // such as linux/amd64
	Bundle     bundleVersions `json:"bundle"`
}

// bundleVersions are the versions of the programs in a bundle, each "" if the
// bundle does not have it.
type bundleVersions struct {
	Dir        string `json:"dir"`
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
	CNIPlugins string `json:"cniPlugins,omitempty"`
	Etcdctl    string `json:"etcdctl,omitempty"`
}

func versionCommand() *cobra.Command {
	var output, bundle string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and its parts",
		Example: `  coracle version
  coracle version -o json`,
		GroupID: "other",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkOutput(output); err != nil {
				return err
			}
			if bundle == "" {
				if bundle, err = bundleBesideBinary(); err != nil {
					return err
				}
			}
			built, _ := debug.ReadBuildInfo() // nil without module support
			return write(cmd.OutOrStdout(), output, versionsOf(built, bundle))
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "directory of the container runtime (default: the directory bundle next to this binary)")
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

// versionsOf returns the versions of a program that was built from the modules
// of built, and of a bundle.
func versionsOf(built *debug.BuildInfo, bundle string) versions {
	v := versions{
		Coracle: version.Kubernetes, Kubernetes: version.Upstream, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Bundle: bundleVersions{
			Dir: bundle, Containerd: programVersion(bundle, "bin/containerd"), Runc: programVersion(bundle, "bin/runc"),
			CNIPlugins: programVersion(bundle, "cni/bridge"), Etcdctl: programVersion(bundle, "bin/etcdctl"),
		},
	}
	if built == nil {
		return v
	}
	for _, module := range built.Deps {
		if module.Path == "go.etcd.io/etcd/server/v3" {
			v.Etcd = module.Version
		}
	}
	return v
}

// programVersion returns the version of the module that a program of a bundle
// was built from, or "" if the program is not there or not made by Go.
func programVersion(bundle, program string) string {
	built, err := buildinfo.ReadFile(filepath.Join(bundle, program))
	if err != nil {
		return ""
	}
	return built.Main.Version
}

// WriteText writes the versions, first as --version does.
func (v versions) WriteText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	_, _ = fmt.Fprintln(w, "coracle version", v.Coracle)
	for _, part := range []struct{ name, version string }{
		{"Kubernetes", v.Kubernetes}, {"etcd", v.Etcd}, {"containerd", v.Bundle.Containerd}, {"runc", v.Bundle.Runc},
		{"CNI plugins", v.Bundle.CNIPlugins}, {"etcdctl", v.Bundle.Etcdctl}, {"Go", v.Go + " " + v.Platform},
	} {
		if part.version == "" {
			part.version = "not in " + v.Bundle.Dir
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", part.name, part.version)
	}
}
