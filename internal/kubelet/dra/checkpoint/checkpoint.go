// Package checkpoint is the content of the file dra_manager_state, in upstream's
// format.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc32"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
)

// Claim is a ResourceClaim that pods of the node use.
type Claim struct {
	ClaimUID  types.UID
	ClaimName string
	Namespace string
	PodUIDs   sets.Set[string]
	// DriverState has an entry for each driver of the allocation.
	DriverState map[string]DriverState
}

// DriverState holds the devices of a claim that a driver has prepared. Devices
// is nil until the driver has answered.
type DriverState struct {
	Devices []Device
}

// Device is a prepared device. Without request names it belongs to all requests
// of the claim.
type Device struct {
	PoolName     string
	DeviceName   string
	ShareID      *types.UID `json:",omitempty"`
	RequestNames []string
	CDIDeviceIDs []string
}

// The type of the data.
const (
	kind       = "DRACheckpoint"
	apiVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// data is the text from which the checksum is computed.
type data struct {
	metav1.TypeMeta
	Entries []Claim
}

type file struct {
	Data     string
	Checksum uint32
}

// Marshal returns the content of the file. It keeps the order of the claims.
func Marshal(claims []Claim) ([]byte, error) {
	raw, err := json.Marshal(data{TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}, Entries: claims})
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{Data: string(raw), Checksum: crc32.ChecksumIEEE(raw)})
}

// Unmarshal reads the content of the file. The error matches checksum.ErrCorrupt
// for a file that has changed.
func Unmarshal(raw []byte) ([]Claim, error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE([]byte(f.Data)) != f.Checksum {
		return nil, checksum.ErrCorrupt
	}
	var d data
	if err := json.Unmarshal([]byte(f.Data), &d); err != nil {
		return nil, fmt.Errorf("read the field Data: %w", err)
	}
	if d.Kind != kind || d.APIVersion != apiVersion {
		return nil, fmt.Errorf("the data is a %s of %s, want a %s of %s", d.Kind, d.APIVersion, kind, apiVersion)
	}
	return d.Entries, nil
}
