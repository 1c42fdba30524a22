// Package version has the Kubernetes version of this program. An update of
// Kubernetes changes its constants, the constants in internal/feature/gates.go,
// and go.mod. bundle/go.mod has the versions of containerd, runc, the CNI
// plugins and etcdctl.
package version

import (
	"runtime"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

const (
	major = "1"
	minor = "37"
	patch = "2"
)

// Release is the release of Kubernetes that this program implements.
const Release = major + "." + minor

// Upstream is the version of Kubernetes that this program implements. Nodes
// report it.
const Upstream = "v" + Release + "." + patch

// Kubernetes is the version of this program. Servers report it.
const Kubernetes = Upstream + "+coracle"

// Info returns the answer to GET /version.
func Info() apimachineryversion.Info {
	return apimachineryversion.Info{
		Major: major, Minor: minor, GitVersion: Kubernetes,
		EmulationMajor: major, EmulationMinor: minor,
		MinCompatibilityMajor: major, MinCompatibilityMinor: "36",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
