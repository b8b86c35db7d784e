// A bundle, in a page whose head asks for its first files before any script runs.
import {start} from "/pages/bundle.js";

start("bundle");
