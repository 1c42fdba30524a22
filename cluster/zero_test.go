package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/leaktest"
)

// run runs a cluster and waits until its API server answers. stop ends it.
func run(t *testing.T, o Options) (c *Cluster, stop func()) {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.APIReady():
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the API server does not answer")
	}
	return c, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestTheZeroValueIsACluster runs several clusters with zero options in one
// process, and checks that they leave no goroutines and no files.
func TestTheZeroValueIsACluster(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent())
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	began := time.Now()
	first, stopFirst := run(t, Options{})
	t.Logf("the API server answered after %v", time.Since(began))
	second, stopSecond := run(t, Options{})
	if first.URL() == second.URL() || !strings.HasPrefix(first.URL(), "https://127.0.0.1:") {
		t.Errorf("they are at %s and %s", first.URL(), second.URL())
	}
	if _, err := first.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[*Cluster]bool{first: true, second: false} {
		fromFile, err := clientcmd.NewDefaultClientConfig(*c.AdminKubeconfig(c.URL()), nil).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		for way, config := range map[string]*kubernetes.Clientset{
			"Config": kubernetes.NewForConfigOrDie(c.Config()), "AdminKubeconfig": kubernetes.NewForConfigOrDie(fromFile),
		} {
			_, err := config.CoreV1().ConfigMaps("default").Get(t.Context(), "one", metav1.GetOptions{})
			if there := err == nil; there != want {
				t.Errorf("%s of %s: %v", way, c.URL(), err)
			}
		}
	}
	stopFirst()
	stopSecond()
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestRunTwice checks that a cluster that runs, or did, does not run again.
func TestRunTwice(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, stop := run(t, Options{})
	if err := c.Run(t.Context()); err == nil {
		t.Error("it runs a second time")
	}
	stop()
	if err := c.Run(t.Context()); err == nil {
		t.Error("it runs again after its end")
	}
}

// TestNewOpensNothing checks that New and Check change nothing on the machine.
func TestNewOpensNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	dir := temporary + "/data"
	for _, o := range []Options{{}, {DataDir: dir}, {DataDir: dir, Etcd: &EtcdOptions{}}} {
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if c.Client() != nil || c.Config() != nil || c.AdminKubeconfig("https://127.0.0.1") != nil || c.URL() != "" {
			t.Error("there is a client before the API server answers")
		}
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for _, test := range []struct {
		o     Options
		field string
	}{
		{Options{Name: "Not a label"}, "Name"},
		{Options{LogLevels: "loud"}, "LogLevels"},
		{Options{LogLevels: "2,nobody=3"}, "LogLevels"},
		{Options{BindAddress: "here"}, "BindAddress"},
		{Options{NodeName: "Not_a_name"}, "NodeName"},
		{Options{AdvertiseAddress: net.IP{1, 2}}, "AdvertiseAddress"},
		{Options{Ports: Ports{Secure: 70000}}, "Ports.Secure"},
		{Options{Ports: Ports{Manager: 70000}}, "Ports.Manager"},
		{Options{Ports: Ports{Scheduler: -1}}, "Ports.Scheduler"},
		{Options{Ports: Ports{Kubelet: -1}}, "Ports.Kubelet"},
		{Options{Ports: Ports{KubeletHealthz: 65536}}, "Ports.KubeletHealthz"},
		{Options{Ports: Ports{ProxyHealthz: 65536}}, "Ports.ProxyHealthz"},
		{Options{Ports: Ports{ProxyMetrics: -7}}, "Ports.ProxyMetrics"},
		{Options{Ports: Ports{DNS: 99999}}, "Ports.DNS"},
		{Options{Ports: Ports{DNSMetrics: 70000}}, "Ports.DNSMetrics"},
		{Options{ServiceCIDR: "10.96.0.0"}, "ServiceCIDR"},
		{Options{ServiceCIDR: "10.96.0.0/30"}, "ServiceCIDR"},
		{Options{ClusterCIDR: "10.244.0.0/16,"}, "ClusterCIDR"},
		{Options{NodePorts: "many"}, "NodePorts"},
		{Options{Node: &NodeOptions{}}, "DataDir"},
		{Options{Node: &NodeOptions{SeparateProcess: true}, DataDir: "x"}, "Ports.Secure"},
		{Options{Node: &NodeOptions{}, DataDir: "x", InProcess: true}, "InProcess"},
		{Options{Node: &NodeOptions{BundleDir: "/nothing"}, DataDir: "x"}, "Node.BundleDir"},
		{Options{Node: &NodeOptions{Ingress: IngressOptions{HTTPPort: 70000}}, DataDir: "x"}, "Node.Ingress.HTTPPort"},
		{Options{Node: &NodeOptions{Ingress: IngressOptions{HTTPSPort: -1}}, DataDir: "x"}, "Node.Ingress.HTTPSPort"},
		{Options{Node: &NodeOptions{Ingress: IngressOptions{HTTPPort: 443}}, DataDir: "x"}, "Node.Ingress.HTTPSPort"},
		{Options{EtcdArgs: []string{"name=x"}}, "EtcdArgs"},
		{Options{Etcd: &EtcdOptions{}, EtcdArgs: []string{"name=x/y"}}, "EtcdArgs"},
		{Options{Etcd: &EtcdOptions{}, EtcdArgs: []string{"listen-client-urls=http://0.0.0.0:2379"}}, "EtcdArgs"},
		{Options{APIServerArgs: []string{"nothing=1"}}, "APIServerArgs"},
		{Options{APIServerArgs: []string{"secure-port=16999"}}, "Ports.Secure"},
		{Options{ControllerManagerArgs: []string{"controllers=*"}, ControlPlane: ControlPlaneOptions{Controllers: []string{"-*"}}}, "ControlPlane.Controllers"},
		{Options{SchedulerArgs: []string{"scheduler-name=x"}, ControlPlane: ControlPlaneOptions{NoScheduler: true}}, "ControlPlane.NoScheduler"},
		{Options{APIServerArgs: []string{"anonymous-auth=perhaps"}}, "APIServerArgs"},
		{Options{KubeletArgs: []string{"max-pods=many"}}, "KubeletArgs"},
	} {
		err := Check(test.o)
		field := (*FieldError)(nil)
		if !errors.As(err, &field) || field.Field != test.field || strings.Contains(err.Error(), "-arg") {
			t.Errorf("%+v: %v, want an error in %s", test.o, err, test.field)
		}
	}
}
