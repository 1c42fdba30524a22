package version

import (
	_ "unsafe" // for go:linkname

	componentversion "k8s.io/component-base/version"
)

// The variables that upstream's builds set by the linker's -X, which says what
// kubectl and its like call themselves. They are the same in every build here.
//
//go:linkname componentVersion k8s.io/component-base/version.gitVersion
var componentVersion string

//go:linkname componentMajor k8s.io/component-base/version.gitMajor
var componentMajor string

//go:linkname componentMinor k8s.io/component-base/version.gitMinor
var componentMinor string

// SetClient makes this version the one that kubectl reports of itself.
func SetClient() error {
	componentVersion, componentMajor, componentMinor = gitVersion, major, minor
	return componentversion.SetDynamicVersion(gitVersion)
}
