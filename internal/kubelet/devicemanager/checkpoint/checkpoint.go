// Package checkpoint is the content of the device manager's checkpoint file, in
// upstream's format.
package checkpoint

import (
	"encoding/json"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
)

// DevicesPerNUMA are the ids of devices by their NUMA node, -1 for none.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry holds the devices of one resource that a container has.
// AllocResp is the plugin's ContainerAllocateResponse, in the wire format.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte
}

// checkpointData is the value from which the checksum is computed. The name of
// the type is part of the checksum.
type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

type file struct {
	Data     checkpointData
	Checksum checksum.Checksum
}

// Marshal returns the content of the file. It keeps the order of the entries.
func Marshal(entries []PodDevicesEntry, registered map[string][]string) ([]byte, error) {
	f := file{Data: checkpointData{PodDeviceEntries: entries, RegisteredDevices: registered}}
	f.Checksum = checksum.New(f.Data)
	return json.Marshal(f)
}

// Unmarshal reads the content of the file. The error matches checksum.ErrCorrupt
// for a file that has changed.
func Unmarshal(raw []byte) (entries []PodDevicesEntry, registered map[string][]string, err error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, nil, err
	}
	if checksum.New(f.Data) != f.Checksum {
		return nil, nil, checksum.ErrCorrupt
	}
	return f.Data.PodDeviceEntries, f.Data.RegisteredDevices, nil
}
