//! In a lab: three nodes, one range, a real plugin that asks ours for addresses.
