package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// The settings of existing clusters can still be read: up keeps
// objects in etcd, and runs the node in a process of its own.
func TestStoredSettingsBecomeOptions(t *testing.T) {
	const stored = `{
  "version": 1, "name": "dev", "slot": 1, "kubeconfig": "/root/.kube/config", "bundle": "/opt/bundle", "v": "2,kubelet=5", "bindAddress": "0.0.0.0",
  "ports": {"secure": 6444, "controllerManager": 10277, "scheduler": 10279, "kubelet": 10270, "kubeletHealthz": 10268, "proxyHealthz": 10276, "proxyMetrics": 10269, "dns": 10073},
  "serviceCIDR": "10.97.0.0/16", "clusterCIDR": "10.243.0.0/16", "nodePorts": "30100-30199",
  %s"nodes": %d, "nodeName": "here", "nftTable": "coracle-dev", "cgroupRoot": "/coracle-dev", "kubeletArgs": ["max-pods=50"]
}`
	want := cluster.Options{
		Name: "dev", BindAddress: "0.0.0.0", NodeName: "here", LogLevels: "2,kubelet=5",
		Ports: cluster.Ports{
			Secure: 6444, Manager: 10277, Scheduler: 10279, Kubelet: 10270, KubeletHealthz: 10268, ProxyHealthz: 10276, ProxyMetrics: 10269, DNS: 10073,
		},
		ServiceCIDR: "10.97.0.0/16", ClusterCIDR: "10.243.0.0/16", NodePorts: "30100-30199", KubeletArgs: []string{"max-pods=50"},
	}
	for _, test := range []struct {
		stored string
		etcd   cluster.EtcdOptions
		node   *cluster.NodeOptions
	}{
		{
			fmt.Sprintf(stored, "", 1), cluster.EtcdOptions{Socket: host.EtcdSocket(host.RunDir("dev"))},
			&cluster.NodeOptions{SeparateProcess: true, BundleDir: "/opt/bundle", NFTable: "coracle-dev", CgroupRoot: "/coracle-dev"},
		},
		{
			fmt.Sprintf(stored, `"etcdServers": ["https://10.0.0.1:2379"], `, 0),
			cluster.EtcdOptions{Servers: []string{"https://10.0.0.1:2379"}, Socket: host.EtcdSocket(host.RunDir("dev"))}, nil,
		},
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(host.SettingsFile(dir), []byte(test.stored), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := host.ReadSettings(dir)
		if err != nil {
			t.Fatal(err)
		}
		want.DataDir, want.Etcd, want.Node = dir, &test.etcd, test.node
		want.ControlPlane.Manifests = []string{filepath.Join(dir, "config-manifests"), filepath.Join(dir, "manifests")}
		if got := settings.ClusterOptions(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nbecomes %+v, want %+v", test.stored, got, want)
		}
	}
}

func TestErrorsNameFlagsForFields(t *testing.T) {
	for _, test := range []struct {
		o    cluster.Options
		want string
	}{
		{cluster.Options{ServiceCIDR: "x"}, "--service-cidr=x: want a range such as 10.96.0.0/16, or two of different families"},
		{cluster.Options{LogLevels: "x"}, `--v: log level "x": want a number from 0 to 10, or component=number`},
		{cluster.Options{APIServerArgs: []string{"x=1"}}, "--apiserver-arg=x=1: the apiserver has no flag --x; see coracle apiserver --help"},
	} {
		err := cluster.Check(test.o)
		if err == nil || inFlags(fmt.Errorf("start: %w", errors.Join(errors.New("first"), err))) != "start: first\n"+test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}
