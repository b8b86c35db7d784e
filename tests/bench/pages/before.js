// A bundle that an older tinyedge exported, with the runtime that it had.
import {start} from "/pages/bundle.js";

start("before");
