// Command extender is an example of a scheduler extender: it keeps pods away
// from warm nodes. A node's label example.com/temperature is its temperature
// in degrees Celsius; a node without the label is cold.
//
// POST /filter rejects the nodes above $LIMIT (70), POST /prioritize prefers
// the coolest of the others, GET /healthz returns ok for probes. It listens on
// $LISTEN, 127.0.0.1:8888 unless set.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// label is the temperature of a node.
const label = "example.com/temperature"

func main() {
	limit, err := strconv.Atoi(cmp.Or(os.Getenv("LIMIT"), "70"))
	if err != nil || limit <= 0 {
		log.Fatalf("LIMIT=%s: want a number above 0", os.Getenv("LIMIT"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server := &http.Server{
		Addr:              cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8888"),
		Handler:           handler(limit),
		ReadHeaderTimeout: 5 * time.Second,
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	log.Print("listening on ", server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}

func handler(limit int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("POST /filter", answer(func(nodes []v1.Node) any { return filter(nodes, limit) }))
	mux.HandleFunc("POST /prioritize", answer(func(nodes []v1.Node) any { return prioritize(nodes, limit) }))
	return mux
}

// answer decodes the nodes in the scheduler's request and encodes the result of
// decide for them.
func answer(decide func([]v1.Node) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil || args.Pod == nil || args.Nodes == nil {
			http.Error(w, "want ExtenderArgs with a pod and nodes: set nodeCacheCapable to false", http.StatusBadRequest)
			return
		}
		log.Printf("%s of %d nodes for pod %s/%s", r.URL.Path, len(args.Nodes.Items), args.Pod.Namespace, args.Pod.Name)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(decide(args.Nodes.Items))
	}
}

// filter returns the nodes that are not too warm. A label that is no number
// rejects its node; evicting pods would not help there.
func filter(nodes []v1.Node, limit int) *extenderv1.ExtenderFilterResult {
	result := &extenderv1.ExtenderFilterResult{
		Nodes: &v1.NodeList{}, FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{},
	}
	for _, n := range nodes {
		degrees, err := temperature(&n)
		switch {
		case err != nil:
			result.FailedAndUnresolvableNodes[n.Name] = fmt.Sprintf("node(s) had no number in label %s", label)
		case degrees > limit:
			result.FailedNodes[n.Name] = fmt.Sprintf("node(s) were warmer than %d °C", limit)
		default:
			result.Nodes.Items = append(result.Nodes.Items, n)
		}
	}
	return result
}

// prioritize gives the coldest nodes the highest score.
func prioritize(nodes []v1.Node, limit int) extenderv1.HostPriorityList {
	list := extenderv1.HostPriorityList{}
	for _, n := range nodes {
		degrees, err := temperature(&n)
		if err != nil {
			degrees = limit
		}
		share := int64(limit-min(max(degrees, 0), limit)) * extenderv1.MaxExtenderPriority / int64(limit)
		list = append(list, extenderv1.HostPriority{Host: n.Name, Score: share})
	}
	return list
}

func temperature(n *v1.Node) (int, error) { return strconv.Atoi(cmp.Or(n.Labels[label], "0")) }
