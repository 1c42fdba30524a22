package checkpoint

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
)

// The file has the format of upstream's kubelet, with its checksum.
func TestUpstreamFormat(t *testing.T) {
	const content = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"Entries\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":1597924435}`
	claims := []Claim{{
		ClaimUID: "067798be-454e-4be4-9047-1aa06aea63f7", ClaimName: "example", Namespace: "default",
		PodUIDs: sets.New("139cdb46-f989-4f17-9561-ca10cfb509a6"),
		DriverState: map[string]DriverState{"test-driver.cdi.k8s.io": {Devices: []Device{
			{PoolName: "worker-1", DeviceName: "dev-1", RequestNames: []string{"test request"}, CDIDeviceIDs: []string{"example.com/example=cdi-example"}}}}},
	}}
	raw, err := Marshal(claims)
	if err != nil || string(raw) != content {
		t.Errorf("wrote %s (%v)", raw, err)
	}
	read, err := Unmarshal([]byte(content))
	if err != nil || !reflect.DeepEqual(read, claims) {
		t.Errorf("read %v (%v)", read, err)
	}
	if _, err := Unmarshal([]byte(strings.Replace(content, "dev-1", "dev-2", 1))); !errors.Is(err, checksum.ErrCorrupt) {
		t.Errorf("a file that was changed: %v", err)
	}
	share := types.UID("share")
	claims[0].DriverState["test-driver.cdi.k8s.io"].Devices[0].ShareID = &share
	claims[0].DriverState["not yet"], claims[0].DriverState["none"] = DriverState{}, DriverState{Devices: []Device{}}
	if raw, err = Marshal(claims); err != nil {
		t.Fatal(err)
	}
	if read, err = Unmarshal(raw); err != nil || !reflect.DeepEqual(read, claims) {
		t.Errorf("read %v (%v)", read, err)
	}
}
