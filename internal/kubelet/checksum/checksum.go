// Package checksum computes the checksums of the kubelet's checkpoint files. As
// in upstream's checkpoint manager, a checksum is a hash of the Go value,
// including the names of its types, so that each kubelet accepts the files of the
// other.
package checksum

import (
	"encoding/json"
	"errors"
	"fmt"
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

// Read reads the content of a file into a checkpoint, of which sum is the checksum: in the
// form that all kubelets read, or in that of newer ones. A checksum of 0 is accepted, as
// upstream's kubelets do. The error matches ErrCorrupt for a file that has changed.
func Read(raw []byte, checkpoint any, sum *Checksum) error {
	newer, err := serialized(raw)
	if err != nil {
		return err
	}
	if newer != nil {
		if err := json.Unmarshal(newer, checkpoint); err != nil {
			return fmt.Errorf("read the field data: %w", err)
		}
		return nil
	}
	if err := json.Unmarshal(raw, checkpoint); err != nil {
		return err
	}
	written := *sum
	*sum = 0
	if written != 0 && New(checkpoint) != written {
		return ErrCorrupt
	}
	return nil
}

// serialized returns the content of a file in the form of newer kubelets, which have it
// as text with a checksum of its own beside the fields of the older form. It returns nil
// for a file without. The error matches ErrCorrupt for a file that has changed.
func serialized(raw []byte) ([]byte, error) {
	var file struct {
		Data         string   `json:"data"`
		DataChecksum Checksum `json:"dataChecksum"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	if file.Data == "" && file.DataChecksum == 0 {
		return nil, nil
	}
	if New(file.Data) != file.DataChecksum {
		return nil, ErrCorrupt
	}
	return []byte(file.Data), nil
}

func hash(text string) Checksum {
	h := fnv.New32a()
	_, _ = io.WriteString(h, text)
	return Checksum(h.Sum32())
}
