// Package version says which Kubernetes this is.
package version

import (
	"runtime"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

const (
	major      = "1"
	minor      = "37"
	gitVersion = "v1.37.2+coracle"
)

// Kubernetes is the version in the form that nodes and servers report.
const Kubernetes = gitVersion

// Info is the answer of GET /version.
func Info() apimachineryversion.Info {
	return apimachineryversion.Info{
		Major: major, Minor: minor, GitVersion: gitVersion,
		EmulationMajor: major, EmulationMinor: minor,
		MinCompatibilityMajor: major, MinCompatibilityMinor: "36",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
