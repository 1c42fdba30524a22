package version

import (
	"runtime/debug"
	_ "unsafe" // for go:linkname

	componentversion "k8s.io/component-base/version"
)

// The linker's flag -X sets these variables in upstream's builds. kubectl and
// other programs report the variable of component-base as their version, and
// clients send the variables of client-go in the header User-Agent.
//
//go:linkname componentVersion k8s.io/component-base/version.gitVersion
var componentVersion string

//go:linkname componentMajor k8s.io/component-base/version.gitMajor
var componentMajor string

//go:linkname componentMinor k8s.io/component-base/version.gitMinor
var componentMinor string

//go:linkname componentCommit k8s.io/component-base/version.gitCommit
var componentCommit string

//go:linkname componentDate k8s.io/component-base/version.buildDate
var componentDate string

//go:linkname clientVersion k8s.io/client-go/pkg/version.gitVersion
var clientVersion string

//go:linkname clientCommit k8s.io/client-go/pkg/version.gitCommit
var clientCommit string

// SetClient makes kubectl and its requests report this version as their own.
func SetClient() error {
	componentVersion, componentMajor, componentMinor = Kubernetes, major, minor
	clientVersion = Kubernetes
	revision, date := "", ""
	if built, ok := debug.ReadBuildInfo(); ok {
		revision, date = source(built)
	}
	componentCommit, clientCommit, componentDate = revision, revision, date
	return componentversion.SetDynamicVersion(Kubernetes)
}

// source returns the commit that a program was built from and its time. They are
// "" if the build was not told.
func source(built *debug.BuildInfo) (revision, date string) {
	for _, setting := range built.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value
		case "vcs.time":
			date = setting.Value
		}
	}
	return revision, date
}
