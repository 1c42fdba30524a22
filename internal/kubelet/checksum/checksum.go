// Package checksum computes the checksums of the kubelet's checkpoint files. As
// in upstream's checkpoint manager, a checksum is a hash of the Go value,
// including the names of its types, so that each kubelet accepts the files of the
// other.
package checksum

import (
	"errors"
	"hash/fnv"
	"io"
	"strings"

	"k8s.io/utils/dump"
)

// ErrCorrupt means that a file is not what was written.
var ErrCorrupt = errors.New("checkpoint is corrupted")

// Checksum is the checksum of a value.
type Checksum uint64

// New returns the checksum of a value.
func New(value any) Checksum { return hash(dump.ForHash(value)) }

// Named returns the checksum that a value has if its type has another name.
func Named(value any, name, other string) Checksum {
	return hash(strings.Replace(dump.ForHash(value), name, other, 1))
}

func hash(text string) Checksum {
	h := fnv.New32a()
	_, _ = io.WriteString(h, text)
	return Checksum(h.Sum32())
}
