package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/netnamespace"
	"github.com/coracle-io/coracle/internal/podquery"
)

const (
	// trafficRounds is how often each way is measured, in turn, trafficTime how long, and
	// roundTrips how many messages of a byte are sent there and back.
	trafficRounds = 5
	trafficTime   = 3 * time.Second
	roundTrips    = 5000
	// trafficPort is the port of the servers, which are in the namespaces of pods and nodes.
	trafficPort = 5201
)

// way is a way of connections through the cluster. All of its servers answer at trafficPort.
type way struct {
	name     string
	from, to netns.NsHandle
	address  string
	bits     []float64 // a second, in each round
	trips    latencies // of the median of each round
}

// measureTraffic measures connections between pods of two nodes, which are network
// namespaces of this machine, as is the link between them: a processor is all that bounds
// it. Each way is measured in turn, and the medians are compared.
func measureTraffic(ctx context.Context, _ *settings, c *cluster, t *table) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	ways, closeAll, err := trafficWays(ctx, client)
	defer closeAll()
	if err != nil {
		return err
	}
	for range trafficRounds {
		for _, w := range ways {
			if err := w.measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	pods, service, link, across := ways[0], ways[1], ways[2], ways[3]
	for _, pair := range []struct {
		way, beside         *way
		throughput, latency string
	}{{service, pods, "95 %", "105 %"}, {across, link, "90 %", "110 %"}} {
		of := pair.way.name + " against " + pair.beside.name
		bits, besideBits := median(pair.way.bits), median(pair.beside.bits)
		t.add("throughput: "+of, pair.throughput, "%.1f %% (%.2f and %.2f Gbit/s, %s)", 100*bits/besideBits, bits/1e9, besideBits/1e9, sender())
		trip, besideTrip := sorted(pair.way.trips).quantile(0.5), sorted(pair.beside.trips).quantile(0.5)
		t.add("round trip: "+of, pair.latency, "%.1f %% (%v and %v)", 100*float64(trip)/float64(besideTrip), trip, besideTrip)
	}
	return nil
}

// median returns the median of figures, of which there is at least one.
func median(of []float64) float64 {
	ordered := slices.Sorted(slices.Values(of))
	return ordered[len(ordered)/2]
}

// trafficWays starts pods, two of them on one node, and a Service of the second. closeAll
// is never nil.
func trafficWays(ctx context.Context, client kubernetes.Interface) (ways []*way, closeAll func(), err error) {
	var open []netns.NsHandle
	closeAll = func() {
		for i := range open {
			_ = open[i].Close()
		}
	}
	namespaceAt := func(address string) netns.NsHandle {
		if err != nil {
			return 0
		}
		var ns netns.NsHandle
		if ns, err = namespaceOf(address); err == nil {
			open = append(open, ns)
		}
		return ns
	}
	const namespace = "bench-traffic"
	if err = makeNamespace(ctx, client, namespace); err != nil {
		return nil, closeAll, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, closeAll, err
	}
	if len(nodes.Items) != 2 {
		return nil, closeAll, fmt.Errorf("the cluster has %d nodes, want 2", len(nodes.Items))
	}
	var pods []string // addresses
	for i, node := range []int{0, 0, 1} {
		address, err := trafficPod(ctx, client, namespace, fmt.Sprint("pod-", i), nodes.Items[node].Name)
		if err != nil {
			return nil, closeAll, err
		}
		pods = append(pods, address)
	}
	service, err := client.CoreV1().Services(namespace).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "traffic"},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"pod": "pod-1"}, Ports: []v1.ServicePort{{Port: trafficPort}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, closeAll, err
	}
	at := []string{nodeAddress(&nodes.Items[0]), nodeAddress(&nodes.Items[1])}
	a, b, far := namespaceAt(pods[0]), namespaceAt(pods[1]), namespaceAt(pods[2])
	one, two := namespaceAt(at[0]), namespaceAt(at[1])
	if err != nil {
		return nil, closeAll, err
	}
	return []*way{
		{name: "pod to pod", from: a, to: b, address: pods[1]},
		{name: "through a ClusterIP", from: a, to: b, address: service.Spec.ClusterIP},
		{name: "the bare link", from: one, to: two, address: at[1]},
		{name: "between pods of two nodes", from: a, to: far, address: pods[2]},
	}, closeAll, nil
}

// nodeAddress returns the first internal address of a node.
func nodeAddress(n *v1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// trafficPod creates a pod on a node, waits until it is ready, and returns its address.
func trafficPod(ctx context.Context, client kubernetes.Interface, namespace, name, node string) (string, error) {
	pods := client.CoreV1().Pods(namespace)
	if _, err := pods.Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod": name}},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{
			Name: "main", Image: benchImage, ImagePullPolicy: v1.PullIfNotPresent,
		}}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	address := ""
	err := poll(ctx, podTimeout, "pod "+name, func() bool {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil && podquery.IsReady(pod) {
			address = pod.Status.PodIP
		}
		return address != ""
	})
	return address, err
}

// measure measures a way once.
func (w *way) measure(ctx context.Context) error {
	trips, err := w.roundTrips(ctx)
	if err != nil {
		return err
	}
	send := w.send
	if _, err := exec.LookPath("iperf3"); err == nil {
		send = w.iperf
	}
	bits, err := send(ctx)
	if err != nil {
		return err
	}
	w.bits, w.trips = append(w.bits, bits), append(w.trips, trips.quantile(0.5))
	return nil
}

// sender returns the name of what sends.
func sender() string {
	if _, err := exec.LookPath("iperf3"); err == nil {
		return "iperf3"
	}
	return "own sender"
}

// target is the address and port to connect to.
func (w *way) target() string { return net.JoinHostPort(w.address, strconv.Itoa(trafficPort)) }

// dial connects, as soon as the rules of the Service are there.
func (w *way) dial(ctx context.Context) (conn net.Conn, err error) {
	waited := poll(ctx, time.Minute, w.target(), func() bool {
		err = netnamespace.Do(int(w.from), func() (err error) {
			conn, err = net.DialTimeout("tcp", w.target(), time.Second)
			return err
		})
		return err == nil
	})
	if waited != nil {
		return nil, errors.Join(waited, err)
	}
	return conn, nil
}

// serve lets a function serve one connection at a time at the end of the way. stop ends it.
func (w *way) serve(handle func(net.Conn)) (stop func(), err error) {
	var l net.Listener
	if err := netnamespace.Do(int(w.to), func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(netip.IPv4Unspecified().String(), strconv.Itoa(trafficPort)))
		return err
	}); err != nil {
		return nil, err
	}
	var server sync.WaitGroup
	server.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			_ = conn.Close()
		}
	})
	return func() { _ = l.Close(); server.Wait() }, nil
}

// roundTrips returns how long a byte takes there and back on one connection.
func (w *way) roundTrips(ctx context.Context) (latencies, error) {
	stop, err := w.serve(func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	if err != nil {
		return nil, err
	}
	defer stop()
	conn, err := w.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	var took latencies
	buffer := make([]byte, 1)
	for range roundTrips {
		began := time.Now()
		if _, err := conn.Write(buffer); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return sorted(took), nil
}

// send sends as much as the way takes, and returns the bits that arrive a second.
func (w *way) send(ctx context.Context) (float64, error) {
	received := make(chan int64, 1)
	stop, err := w.serve(func(conn net.Conn) {
		n, _ := io.Copy(struct{ io.Writer }{io.Discard}, conn)
		select {
		case received <- n:
		default:
		}
	})
	if err != nil {
		return 0, err
	}
	defer stop()
	conn, err := w.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	buffer := make([]byte, 128<<10)
	began := time.Now()
	for time.Since(began) < trafficTime {
		if _, err := conn.Write(buffer); err != nil {
			return 0, err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	select {
	case n := <-received:
		return 8 * float64(n) / time.Since(began).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// iperf is send by iperf3.
func (w *way) iperf(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	port := strconv.Itoa(trafficPort)
	server := exec.CommandContext(ctx, "iperf3", "-s", "-p", port)
	if err := netnamespace.Do(int(w.to), server.Start); err != nil {
		cancel()
		return 0, err
	}
	defer func() { cancel(); _ = server.Wait() }()
	var report struct {
		End struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	var failure error
	err := poll(ctx, time.Minute, "iperf3", func() bool { // the server needs a moment to listen
		var out []byte
		failure = netnamespace.Do(int(w.from), func() (err error) {
			out, err = exec.CommandContext(ctx, "iperf3", "-c", w.address, "-p", port, "-J", "-t", strconv.Itoa(int(trafficTime/time.Second))).Output()
			return err
		})
		if failure == nil {
			failure = json.Unmarshal(out, &report)
		}
		return failure == nil
	})
	if err != nil {
		return 0, errors.Join(err, failure)
	}
	return report.End.SumReceived.BitsPerSecond, nil
}
