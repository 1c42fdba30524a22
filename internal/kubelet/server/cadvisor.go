package server

import (
	"net/http"
	"time"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
)

// series is one metric of a group: nothing where there is no value.
type series struct {
	name, kind, help string
	value            func(g *stats.Group) (float64, bool)
	labels           []string
}

func always(get func(g *stats.Group) float64) func(g *stats.Group) (float64, bool) {
	return func(g *stats.Group) (float64, bool) { return get(g), true }
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / 1e9 }

// limited are the metrics of what a container may use; only containers have them.
func limited(get func(g *stats.Group) int64) func(g *stats.Group) (float64, bool) {
	return func(g *stats.Group) (float64, bool) { return float64(get(g)), g.Container != "" }
}

func throttling(get func(g *stats.Group) float64) func(g *stats.Group) (float64, bool) {
	return func(g *stats.Group) (float64, bool) { return get(g), g.Quota > 0 }
}

func cpuPressure(g *stats.Group) *cgroup.Pressure    { return g.Usage.CPUPressure }
func memoryPressure(g *stats.Group) *cgroup.Pressure { return g.Usage.MemoryPressure }
func ioPressure(g *stats.Group) *cgroup.Pressure     { return g.Usage.IOPressure }

// waited are the metrics of the time in which some tasks lacked a resource.
func waited(get func(g *stats.Group) *cgroup.Pressure) func(g *stats.Group) (float64, bool) {
	return func(g *stats.Group) (float64, bool) {
		p := get(g)
		if p == nil {
			return 0, false
		}
		return seconds(p.Some.Nanoseconds), true
	}
}

// stalled are the metrics of the time in which all tasks lacked a resource.
func stalled(get func(g *stats.Group) *cgroup.Pressure) func(g *stats.Group) (float64, bool) {
	return func(g *stats.Group) (float64, bool) {
		p := get(g)
		if p == nil {
			return 0, false
		}
		return seconds(p.Full.Nanoseconds), true
	}
}

// cadvisorSeries are the metrics by cadvisor's names.
func cadvisorSeries() []series {
	return []series{
		{"container_cpu_cfs_periods_total", "counter", "Number of elapsed enforcement period intervals.", throttling(func(g *stats.Group) float64 { return float64(g.Usage.Periods) }), nil},
		{"container_cpu_cfs_throttled_periods_total", "counter", "Number of throttled period intervals.", throttling(func(g *stats.Group) float64 { return float64(g.Usage.ThrottledPeriods) }), nil},
		{"container_cpu_cfs_throttled_seconds_total", "counter", "Total time duration the container has been throttled.", throttling(func(g *stats.Group) float64 { return seconds(g.Usage.ThrottledNanoseconds) }), nil},
		{"container_cpu_system_seconds_total", "counter", "Cumulative system cpu time consumed in seconds.", always(func(g *stats.Group) float64 { return seconds(g.Usage.SystemNanoseconds) }), nil},
		{"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", always(func(g *stats.Group) float64 { return seconds(g.Usage.CPUNanoseconds) }), []string{"cpu", "total"}},
		{"container_cpu_user_seconds_total", "counter", "Cumulative user cpu time consumed in seconds.", always(func(g *stats.Group) float64 { return seconds(g.Usage.UserNanoseconds) }), nil},
		{"container_fs_usage_bytes", "gauge", "Number of bytes that are consumed by the container on this filesystem.", func(g *stats.Group) (float64, bool) {
			if g.Disk == nil {
				return 0, false
			}
			return float64(*g.Disk), true
		}, []string{"device", ""}},
		{"container_last_seen", "gauge", "Last time a container was seen by the exporter", always(func(*stats.Group) float64 { return float64(time.Now().Unix()) }), nil},
		{"container_memory_cache", "gauge", "Number of bytes of page cache memory.", always(func(g *stats.Group) float64 { return float64(g.Usage.CacheBytes) }), nil},
		{"container_memory_failcnt", "counter", "Number of memory usage hits limits", always(func(g *stats.Group) float64 { return float64(g.Usage.MemoryFailures) }), nil},
		{"container_memory_mapped_file", "gauge", "Size of memory mapped files in bytes.", always(func(g *stats.Group) float64 { return float64(g.Usage.MappedBytes) }), nil},
		{"container_memory_max_usage_bytes", "gauge", "Maximum memory usage recorded in bytes", always(func(g *stats.Group) float64 { return float64(g.Usage.PeakBytes) }), nil},
		{"container_memory_rss", "gauge", "Size of RSS in bytes.", always(func(g *stats.Group) float64 { return float64(g.Usage.RSSBytes) }), nil},
		{"container_memory_swap", "gauge", "Container swap usage in bytes.", always(func(g *stats.Group) float64 { return float64(g.Usage.SwapBytes) }), nil},
		{"container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory regardless of when it was accessed", always(func(g *stats.Group) float64 { return float64(g.Usage.MemoryBytes) }), nil},
		{"container_memory_working_set_bytes", "gauge", "Current working set in bytes.", always(func(g *stats.Group) float64 { return float64(g.Usage.WorkingSetBytes) }), nil},
		{"container_pressure_cpu_stalled_seconds_total", "counter", "Total time duration no tasks in the container could make progress due to CPU congestion.", stalled(cpuPressure), nil},
		{"container_pressure_cpu_waiting_seconds_total", "counter", "Total time duration tasks in the container have waited due to CPU congestion.", waited(cpuPressure), nil},
		{"container_pressure_io_stalled_seconds_total", "counter", "Total time duration no tasks in the container could make progress due to IO congestion.", stalled(ioPressure), nil},
		{"container_pressure_io_waiting_seconds_total", "counter", "Total time duration tasks in the container have waited due to IO congestion.", waited(ioPressure), nil},
		{"container_pressure_memory_stalled_seconds_total", "counter", "Total time duration no tasks in the container could make progress due to memory congestion.", stalled(memoryPressure), nil},
		{"container_pressure_memory_waiting_seconds_total", "counter", "Total time duration tasks in the container have waited due to memory congestion.", waited(memoryPressure), nil},
		{"container_spec_cpu_period", "gauge", "CPU period of the container.", limited(func(g *stats.Group) int64 { return g.Period }), nil},
		{"container_spec_cpu_quota", "gauge", "CPU quota of the container.", throttling(func(g *stats.Group) float64 { return float64(g.Quota) }), nil},
		{"container_spec_cpu_shares", "gauge", "CPU share of the container.", limited(func(g *stats.Group) int64 { return g.Shares }), nil},
		{"container_spec_memory_limit_bytes", "gauge", "Memory limit for the container.", limited(func(g *stats.Group) int64 { return g.MemoryLimit }), nil},
		{"container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", func(g *stats.Group) (float64, bool) {
			return float64(g.Started.Unix()), !g.Started.IsZero()
		}, nil},
		{"container_threads", "gauge", "Number of threads running inside the container", always(func(g *stats.Group) float64 { return float64(g.Usage.Processes) }), nil},
	}
}

// diskMetric is a metric of what a group read from a disk or wrote to it.
type diskMetric struct {
	name, help string
	value      func(d *cgroup.Disk) uint64
}

func diskMetrics() []diskMetric {
	return []diskMetric{
		{"container_fs_reads_bytes_total", "Cumulative count of bytes read", func(d *cgroup.Disk) uint64 { return d.ReadBytes }},
		{"container_fs_reads_total", "Cumulative count of reads completed", func(d *cgroup.Disk) uint64 { return d.Reads }},
		{"container_fs_writes_bytes_total", "Cumulative count of bytes written", func(d *cgroup.Disk) uint64 { return d.WrittenBytes }},
		{"container_fs_writes_total", "Cumulative count of writes completed", func(d *cgroup.Disk) uint64 { return d.Writes }},
	}
}

// networkMetric is a metric of a network interface: nothing where there is no value.
type networkMetric struct {
	name, help string
	value      func(i *stats.Interface) (uint64, bool)
}

func networkMetrics() []networkMetric {
	counted := func(get func(i *stats.Interface) uint64) func(i *stats.Interface) (uint64, bool) {
		return func(i *stats.Interface) (uint64, bool) { return get(i), true }
	}
	packets := func(get func(p *cgroup.Packets) uint64) func(i *stats.Interface) (uint64, bool) {
		return func(i *stats.Interface) (uint64, bool) {
			if i.Packets == nil {
				return 0, false
			}
			return get(i.Packets), true
		}
	}
	return []networkMetric{
		{"container_network_receive_bytes_total", "Cumulative count of bytes received", counted(func(i *stats.Interface) uint64 { return i.ReceivedBytes })},
		{"container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", counted(func(i *stats.Interface) uint64 { return i.ReceiveErrors })},
		{"container_network_receive_packets_dropped_total", "Cumulative count of packets dropped while receiving", packets(func(p *cgroup.Packets) uint64 { return p.ReceivedDropped })},
		{"container_network_receive_packets_total", "Cumulative count of packets received", packets(func(p *cgroup.Packets) uint64 { return p.Received })},
		{"container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", counted(func(i *stats.Interface) uint64 { return i.SentBytes })},
		{"container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", counted(func(i *stats.Interface) uint64 { return i.SendErrors })},
		{"container_network_transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting", packets(func(p *cgroup.Packets) uint64 { return p.SentDropped })},
		{"container_network_transmit_packets_total", "Cumulative count of packets transmitted", packets(func(p *cgroup.Packets) uint64 { return p.Sent })},
	}
}

// metricsCadvisor shows what each control group uses, by the names that
// cadvisor made known.
func (s *Server) metricsCadvisor(w http.ResponseWriter, r *http.Request) {
	machine, groups, err := s.config.Stats.Groups(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	t := newText(w)
	t.add("cadvisor_version_info", "gauge", "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.", 1,
		"cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", machine.Kernel, "osVersion", machine.OS)
	label := func(g *stats.Group, more ...string) []string {
		return append(append([]string{"container", g.Container}, more...), "id", g.ID, "image", g.Image)
	}
	for _, one := range cadvisorSeries() {
		for i := range groups {
			g := &groups[i]
			if value, ok := one.value(g); ok {
				t.add(one.name, one.kind, one.help, value, append(label(g, one.labels...), "name", g.Name, "namespace", g.Namespace, "pod", g.Pod)...)
			}
		}
	}
	for _, one := range diskMetrics() {
		for i := range groups {
			g := &groups[i]
			for j := range g.Disks {
				t.add(one.name, "counter", one.help, float64(one.value(&g.Disks[j])),
					append(label(g, "device", g.Disks[j].Device), "name", g.Name, "namespace", g.Namespace, "pod", g.Pod)...)
			}
		}
	}
	for _, one := range networkMetrics() {
		for i := range groups {
			g := &groups[i]
			for j := range g.Interfaces {
				if value, ok := one.value(&g.Interfaces[j]); ok {
					t.add(one.name, "counter", one.help, float64(value),
						append(label(g), "interface", g.Interfaces[j].Name, "name", g.Name, "namespace", g.Namespace, "pod", g.Pod)...)
				}
			}
		}
	}
	t.add("container_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", 0)
	identity := []string{"boot_id", machine.BootID, "machine_id", machine.MachineID, "system_uuid", machine.SystemUUID}
	t.add("machine_cpu_cores", "gauge", "Number of logical CPU cores.", float64(machine.CPUs), identity...)
	t.add("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.", float64(machine.MemoryBytes), identity...)
	t.flush()
}
