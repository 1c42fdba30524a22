package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/coracle-io/coracle/internal/kubelet/dra/dratest"
)

type fields = map[string]any // of a JSON object

// claimDriver is a DRA driver whose devices are /dev/null under other names.
type claimDriver struct {
	dratest.Driver
	client  kubernetes.Interface
	node    string
	devices []string
	root    string // of the kubelet
	cluster string // names its files in cdiDir, which the machine has once
}

const (
	claimDriverName = "dra.test"
	cdiDir          = "/var/run/cdi"
)

// draDriver serves a DRA driver to a kubelet, and publishes its devices:
// dradriver KUBELETROOT NODE DEVICE... With a negation it ends the driver. While
// there is a file KUBELETROOT/hang, it makes a file KUBELETROOT/hanging instead
// of preparing claims, and hangs. Then it writes into that file what has ended
// the call.
func draDriver(ts *testscript.TestScript, neg bool, args []string) {
	known := ts.Value(servicesKey{}).(*services)
	if neg {
		known.stopClaims()
		return
	}
	if len(args) < 3 {
		ts.Fatalf("usage: dradriver KUBELETROOT NODE DEVICE...")
	}
	client, err := kubernetes.NewForConfig(adminConfig(ts))
	ts.Check(err)
	d := &claimDriver{client: client, node: args[1], devices: args[2:], root: args[0], cluster: ts.Getenv("CLUSTER")}
	d.Driver = dratest.Driver{
		Name: claimDriverName, Services: []string{drapb.DRAPluginService, healthv1.DRAResourceHealthService}, Devices: d.prepare, Released: d.release,
	}
	ts.Check(os.MkdirAll(cdiDir, 0o755))
	stop, err := d.Serve(filepath.Join(args[0], "plugins", claimDriverName, "dra.sock"), filepath.Join(args[0], "plugins_registry", claimDriverName+"-reg.sock"))
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.publish(ctx) }()
	known.stopClaims = sync.OnceFunc(func() { cancel(); <-done; stop() })
	ts.Defer(known.stopClaims)
}

// publish keeps a ResourceSlice with the devices in the API, and reports that
// they are healthy, until ctx ends.
func (d *claimDriver) publish(ctx context.Context) {
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: d.node + "-" + d.Name}}
	slice.Spec = resourceapi.ResourceSliceSpec{Driver: d.Name, NodeName: &d.node, Pool: resourceapi.ResourcePool{Name: d.node, Generation: 1, ResourceSliceCount: 1}}
	var health []*healthv1.DeviceHealth
	for _, name := range d.devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name})
		health = append(health, &healthv1.DeviceHealth{Device: &healthv1.DeviceIdentifier{PoolName: d.node, DeviceName: name}, Health: healthv1.HealthStatus_HEALTHY})
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		d.Report(health...)
		// Errors pass: the cluster may be away.
		_, _ = d.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (d *claimDriver) spec(claim *drapb.Claim) string {
	return filepath.Join(cdiDir, d.cluster+"-"+claim.GetUid()+".json")
}

// prepare makes the CDI devices of a claim.
func (d *claimDriver) prepare(ctx context.Context, claim *drapb.Claim) ([]*drapb.Device, error) {
	if _, err := os.Stat(filepath.Join(d.root, "hang")); err == nil {
		if err := os.WriteFile(filepath.Join(d.root, "hanging"), nil, 0o644); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, errors.Join(ctx.Err(), os.WriteFile(filepath.Join(d.root, "hanging"), []byte(ctx.Err().Error()), 0o644))
	}
	object, err := d.client.ResourceV1().ResourceClaims(claim.GetNamespace()).Get(ctx, claim.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if string(object.UID) != claim.GetUid() {
		return nil, errors.New("another claim has this name")
	}
	var cdi []fields
	var devices []*drapb.Device
	for _, r := range object.Status.Allocation.Devices.Results {
		if r.Driver != d.Name {
			continue
		}
		id := claim.GetUid() + "-" + r.Device
		cdi = append(cdi, fields{"name": id, "containerEdits": fields{
			"env": []string{"DEVICE=" + r.Device}, "deviceNodes": []fields{{"path": "/dev/" + r.Device, "hostPath": "/dev/null"}},
		}})
		devices = append(devices, &drapb.Device{PoolName: r.Pool, DeviceName: r.Device, RequestNames: []string{r.Request}, CdiDeviceIds: []string{d.Name + "/device=" + id}})
	}
	raw, err := json.Marshal(fields{"cdiVersion": "0.6.0", "kind": d.Name + "/device", "devices": cdi})
	if err != nil {
		return nil, err
	}
	return devices, os.WriteFile(d.spec(claim), raw, 0o644)
}

// release removes the CDI devices of a claim.
func (d *claimDriver) release(claim *drapb.Claim) error {
	if err := os.Remove(d.spec(claim)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the CDI devices: %w", err)
	}
	return nil
}
