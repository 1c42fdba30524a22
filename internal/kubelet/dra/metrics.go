package dra

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

type metrics struct {
	operations *prometheus.HistogramVec
	grpc       *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer, s *state) metrics {
	m := metrics{
		operations: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "dra_operations_duration_seconds",
			Help: "Latency of preparing (PrepareResources) or unpreparing (UnprepareResources) all ResourceClaims of a pod, in seconds, by operation and whether it failed.",
		}, []string{"operation_name", "is_error"}),
		grpc: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "dra_grpc_operations_duration_seconds",
			Help: "Duration in seconds of the DRA gRPC operations",
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
	}
	if registerer != nil {
		registerer.MustRegister(m.operations, m.grpc, inUse{state: s, desc: prometheus.NewDesc("dra_resource_claims_in_use",
			"The number of ResourceClaims that are currently in use on the node, by driver name, and of all drivers together (<any>).", []string{"driver_name"}, nil)})
	}
	return m
}

// operation records an operation on the claims of a pod.
func (m *metrics) operation(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(time.Since(began).Seconds())
}

// calls records the calls to a driver.
func (m *metrics) calls(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, request, answer, conn, options...)
		m.grpc.WithLabelValues(driver, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
		return err
	}
}

// inUse counts claims when it is asked.
type inUse struct {
	state *state
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (u inUse) Describe(out chan<- *prometheus.Desc) { out <- u.desc }

// Collect implements prometheus.Collector.
func (u inUse) Collect(out chan<- prometheus.Metric) {
	claims := u.state.all()
	count := map[string]int{"<any>": len(claims)}
	for _, c := range claims {
		for driver := range c.DriverState {
			count[driver]++
		}
	}
	for driver, n := range count {
		out <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, float64(n), driver)
	}
}
